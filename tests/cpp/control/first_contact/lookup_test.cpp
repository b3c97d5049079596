// Names of hosts: their lookup does not hold up first contact beyond its deadline.
#include "collops/comm/control/first_contact/port_contact.h"

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <cstring>

#include "control/first_contact/ranks_that_meet.h"

namespace {

using namespace collops;
using collops::control::Lookup;
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

TEST(ASilentResolverEndsWithTheDeadline) {
  for (const int rank : {0, 1}) {
    const auto start = std::chrono::steady_clock::now();
    const Status status = loopback::Meet(loopback::SpecOf(rank, 2, 29577, "slow.test"), 0.3);
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
