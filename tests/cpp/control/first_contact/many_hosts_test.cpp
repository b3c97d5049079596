// First contact of two thousand ranks on 250 hosts, here processes that name different hosts: eight
// ranks of a host are threads of its process. Rank 0 has a connection to each host, not to each
// rank.
#include <cstdlib>
#include <thread>

#include "collops/comm/control/first_contact/rendezvous.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/rank_set.h"
#include "control/first_contact/ranks_that_meet.h"
#include "proc.h"
#include "sanitized.h"

namespace {

using namespace collops;
using collops::control::ConnectHosts;
using collops::control::Connection;
using collops::control::HostsOf;
using collops::control::JobListener;
using collops::control::JobSecret;
using collops::control::Rendezvous;
using collops::control::Row;

// A sanitizer's processes take ten times the memory.
constexpr int kHosts = kSanitized ? 20 : 250;
constexpr int kPerHost = 8;
constexpr int kRanks = kHosts * kPerHost;
const double kTimeoutS = check::Patience(60);
const JobSecret kSecret = {"a job", "a key"};

// One host of eight ranks, each of which runs `body`.
pid_t StartHost(int host, const std::function<void(int)>& body) {
  return ranks::Start([host, &body] {
    setenv("COLLOPS_SERVER_ID", std::to_string(host).c_str(), 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < kPerHost; ++i) threads.emplace_back([&, i] { body(host * kPerHost + i); });
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace

TEST(TwoThousandRanksMeet) {
  const int port = loopback::FreePort();
  const auto start = std::chrono::steady_clock::now();
  const auto meet = [&](int rank) {
    std::vector<Row> rows;
    const auto rendezvous = Rendezvous::Create(loopback::SpecOf(rank, kRanks, port));
    rendezvous->Begin();
    const Deadline deadline = Deadline::After(kTimeoutS);
    EXPECT_EQ(rendezvous->Complete(deadline, &rows).message(), "");
    const std::vector<int> host_of = HostsOf(rows);
    ASSERT_EQ(host_of.size(), kRanks);
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(rows[static_cast<size_t>(r)].rank, r);
      EXPECT_EQ(host_of[static_cast<size_t>(r)], r / kPerHost);
    }
    // One per host, and a few for the process and the listeners of its ranks.
    if (rank == 0) EXPECT_TRUE(proc::NumDescriptors() < kHosts + 8 * kPerHost);
    EXPECT_EQ(rendezvous->Finish(Ok(), deadline).message(), "");
  };
  const std::function<void(int)> body = meet;
  std::vector<pid_t> pids;
  for (int host = kHosts - 1; host >= 0; --host) pids.push_back(StartHost(host, body));
  loopback::ExpectWell(pids);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("  %d ranks on %d hosts met in %.1f s\n", kRanks, kHosts, took.count());
}

TEST(ALostOneIsNamedToAll) {
  constexpr int kLost = kRanks / 2 + 2;
  constexpr int kLostHost = kLost / kPerHost;
  const int port = loopback::FreePort();
  const ranks::Event met;
  const auto meet = [&](int rank) {
    std::vector<Row> rows;
    const auto rendezvous = Rendezvous::Create(loopback::SpecOf(rank, kRanks, port));
    rendezvous->Begin();
    const Deadline deadline = Deadline::After(kTimeoutS);
    EXPECT_EQ(rendezvous->Complete(deadline, &rows).message(), "");
    if (rank / kPerHost == kLostHost) {
      // The other ranks of its host are threads of this process, and end with it.
      if (rank == kLost) met.Wait(kRanks - kPerHost);
      if (rank == kLost) _exit(0);
      for (;;) pause();
    }
    met.Set();
    const Status status = rendezvous->Finish(Ok(), deadline);
    EXPECT_EQ(status.code(), ERROR_PEER_LOST);
    // Any rank of that host may have spoken for it.
    bool named = false;
    for (int r = kLostHost * kPerHost; r < (kLostHost + 1) * kPerHost; ++r) {
      named = named || status.message().find(Concat("rank ", r, " (pid ")) == 0;
    }
    EXPECT_TRUE(named);
    EXPECT_CONTAINS(status.message(), "ended during first contact");
  };
  const std::function<void(int)> body = meet;
  std::vector<pid_t> pids;
  for (int host = kHosts - 1; host >= 0; --host) pids.push_back(StartHost(host, body));
  loopback::ExpectWell(pids);
}

// The last host is joined to all others, which connect to it at once.
TEST(AHostIsJoinedByManyAtOnce) {
  collops::control::Introduction hosts;
  hosts.secret = kSecret;
  hosts.rows.resize(kHosts);
  const auto lobby =
      std::make_shared<collops::control::Lobby>(std::make_unique<JobListener>(kSecret));
  hosts.lobby = lobby;
  JobListener& listener = lobby->listener();
  ASSERT_EQ(listener.Open(loopback::At("127.0.0.1")).message(), "");
  for (int host = 0; host < kHosts; ++host) {
    Row& row = hosts.rows[static_cast<size_t>(host)];
    row.rank = host;
    row.host = std::to_string(host);
    row.address = "127.0.0.1";
    row.port = listener.address().port();
  }
  std::vector<std::unique_ptr<collops::control::HandshakeClient>> others;
  for (int host = 1; host < kHosts; ++host) {
    others.push_back(std::make_unique<collops::control::HandshakeClient>(
        Connection(listener.address()), &kSecret,
        collops::control::Claim{"dp", "hosts", host, kHosts}));
  }
  const auto step_others = [&] {
    for (const auto& other : others) static_cast<void>(other->Step());
    return Ok();
  };
  std::vector<Connection> connections;
  EXPECT_EQ(
      ConnectHosts("dp", hosts, 0, step_others, Deadline::After(kTimeoutS), &connections).message(),
      "");
  ASSERT_EQ(connections.size(), kHosts);
  for (size_t host = 1; host < kHosts; ++host) EXPECT_TRUE(connections[host].alive());
}

TEST(OfManyMissingRanksTheFirstAreListed) {
  RankSet present = RankSet::None(2000);
  present.Add(1);
  EXPECT_EQ(RanksMissing(present, 2000),
            "ranks 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 1983 others of 2000");
}
