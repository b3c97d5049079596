// Names of hosts: their lookup does not hold up first contact beyond its deadline.
#include "collops/comm/control/first_contact/job_port.h"

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "collops/comm/control/first_contact/rendezvous.h"
#include "control/first_contact/loopback.h"

namespace {

using namespace collops;
using collops::control::Lookup;
using collops::control::Rendezvous;
using collops::control::RendezvousSpec;
using collops::control::Row;
using collops::control::SocketAddress;

std::atomic<bool> answers{false};
std::atomic<int> asked{0};

}  // namespace

// A resolver that does not answer for "slow.test", until it may.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool slow = node != nullptr && std::strcmp(node, "slow.test") == 0;
  if (!slow || (hints->ai_flags & AI_NUMERICHOST) != 0) return next(node, service, hints, found);
  ++asked;
  while (!answers) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return next("127.0.0.1", service, hints, found);
}

TEST(AnAddressIsNotLookedUp) {
  for (const char* text : {"127.0.0.1", "::1"}) {
    SocketAddress address;
    Status status;
    EXPECT_TRUE(Lookup(text, 7).Done(&status, &address));
    EXPECT_EQ(status.message(), "");
    EXPECT_EQ(address.Host(), text);
    EXPECT_EQ(address.port(), 7);
  }
}

TEST(ANameThatIsNotKnownIsAnError) {
  // Longer than any name can be: no name server is asked.
  const std::string name(300, 'x');
  const Lookup lookup(name, 7);
  SocketAddress address;
  Status status;
  loopback::Await([&] { return lookup.Done(&status, &address); });
  EXPECT_CONTAINS(status.message(),
                  "\"" + name + "\" is not an address, and the name cannot be resolved");
}

TEST(ASilentResolverEndsWithTheDeadline) {
  for (const int rank : {0, 1}) {
    RendezvousSpec spec;
    spec.domain = "dp";
    spec.rank = rank;
    spec.rank_size = 2;
    spec.host = "slow.test";
    spec.port = 29577;
    spec.has_port = rank == 0;
    spec.secret = {"a job", ""};
    const auto rendezvous = Rendezvous::Create(spec);
    rendezvous->Begin();
    std::vector<Row> rows;
    const auto start = std::chrono::steady_clock::now();
    const Status status = rendezvous->Complete(Deadline::After(0.3), &rows);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "the name \"slow.test\" is still being resolved");
    EXPECT_TRUE(took.count() < check::Patience(5));
  }
  EXPECT_EQ(asked.load(), 2);
  // The threads that were left end with the resolver's answer.
  answers = true;
  const Lookup lookup("slow.test", 7);
  SocketAddress address;
  Status status;
  loopback::Await([&] { return lookup.Done(&status, &address); });
  EXPECT_EQ(address.Text(), "127.0.0.1:7");
}
