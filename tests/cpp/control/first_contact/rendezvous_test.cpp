// First contact of ranks on several hosts, here processes that name different hosts: who meets
// whom, what each is told if they do not fit together, and what strangers can do: nothing.
#include "collops/comm/control/first_contact/rendezvous.h"

#include <csignal>
#include <cstdlib>

#include "collops/comm/control/hosts/mesh.h"
#include "collops/core/process/interrupt.h"
#include "control/first_contact/ranks_that_meet.h"

namespace {

using namespace collops;
using collops::control::ConnectHosts;
using collops::control::Connection;
using collops::control::HostsOf;
using collops::control::Introduction;
using collops::control::JobListener;
using collops::control::JobSecret;
using collops::control::Lobby;
using collops::control::Proven;
using collops::control::Rendezvous;
using collops::control::RendezvousSpec;
using collops::control::Row;
using loopback::Await;
using loopback::ByHand;
using loopback::FreePort;
using loopback::kMeetS;
using loopback::ListenAt;
using loopback::Listener;
using loopback::Meet;
using loopback::SpecOf;
using loopback::Stranger;

const JobSecret kSecret = {"a job", "a key"};

// Runs each body in a process of its own.
void InProcesses(const std::vector<std::function<void()>>& bodies) {
  std::vector<pid_t> pids;
  for (const auto& body : bodies) pids.push_back(ranks::Start(body));
  loopback::ExpectWell(pids);
}

// One process for each spec, all of which get an error with that code that contains the text.
void ExpectAll(const std::vector<RendezvousSpec>& specs, ErrorCode code, const std::string& text) {
  std::vector<std::function<void()>> bodies;
  for (const RendezvousSpec& spec : specs) {
    bodies.push_back([spec, code, text] {
      const auto start = std::chrono::steady_clock::now();
      const Status status = Meet(spec);
      EXPECT_EQ(status.code(), code);
      EXPECT_CONTAINS(status.message(), text);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      EXPECT_TRUE(took.count() < kMeetS / 2);
    });
  }
  InProcesses(bodies);
}

void SetHost(const std::string& name) {
  setenv("COLLOPS_SERVER_ID", name.c_str(), 1);
}

bool interrupted = false;

}  // namespace

TEST(AllRanksGetAllRows) {
  for (const char* host : {"127.0.0.1", "127.0.0.2", "::1"}) {
    constexpr int kRanks = 6;
    const int port = FreePort(host);
    std::vector<std::function<void()>> bodies;
    for (int rank = kRanks - 1; rank >= 0; --rank) {
      bodies.push_back([rank, port, host, kRanks = kRanks] {
        SetHost(rank < 4 ? "a" : "b");
        std::vector<Row> rows;
        const auto rendezvous = Rendezvous::Create(SpecOf(rank, kRanks, port, host));
        rendezvous->Begin();
        const Status status = rendezvous->Complete(Deadline::After(kMeetS), &rows);
        EXPECT_EQ(status.message(), "");
        ASSERT_EQ(rows.size(), kRanks);
        for (int r = 0; r < kRanks; ++r) {
          const Row& row = rows[static_cast<size_t>(r)];
          EXPECT_EQ(row.rank, r);
          EXPECT_TRUE(r == rank ? row.pid == getpid() : row.pid > 0 && row.pid != getpid());
          EXPECT_EQ(row.host, r < 4 ? "server a" : "server b");
          EXPECT_TRUE(row.port > 0 && row.port != port);
        }
        EXPECT_EQ(HostsOf(rows), (std::vector<int>{0, 0, 0, 0, 1, 1}));
        EXPECT_EQ(rendezvous->Finish(Ok(), Deadline::After(kMeetS)).message(), "");
      });
    }
    InProcesses(bodies);
  }
}

// The first attempt of the other rank finds someone who hangs up.
TEST(RankZeroMayComeLast) {
  Listener other = ListenAt("127.0.0.1");
  const int port = other.address().port();
  const pid_t member = ranks::Start([&] { EXPECT_EQ(Meet(SpecOf(1, 2, port)).message(), ""); });
  Await([&] { return other.Accept().valid(); });
  other.Close();
  EXPECT_EQ(Meet(SpecOf(0, 2, port)).message(), "");
  EXPECT_EQ(ranks::Wait(member).code, 0);
}

// The first connection to a host is closed, because it has no descriptor left; the second is good.
// A host that is gone is an error at once.
TEST(AHostIsTriedAgainUnlessItIsGone) {
  Introduction hosts;
  hosts.secret = kSecret;
  hosts.rows.resize(2);
  for (size_t r = 0; r < 2; ++r) {
    hosts.rows[r].host = std::to_string(r);
    hosts.rows[r].address = "127.0.0.1";
  }
  auto lobby = std::make_shared<Lobby>(std::make_unique<JobListener>(kSecret));
  hosts.lobby = lobby;
  JobListener& listener = lobby->listener();
  ASSERT_EQ(listener.Open(loopback::At("127.0.0.1")).message(), "");
  hosts.rows[0].port = listener.address().port();
  const auto join = [&](int rank, std::vector<Connection>* connections) {
    return ConnectHosts("dp", hosts, rank, nullptr, Deadline::After(kMeetS), connections);
  };
  const pid_t other = ranks::Start([&] {
    const auto own = std::make_shared<Lobby>(std::make_unique<JobListener>(kSecret));
    hosts.lobby = own;
    std::vector<Connection> connections;
    EXPECT_EQ(join(1, &connections).message(), "");
  });
  std::vector<pollfd> polled;
  listener.AddPolled(&polled);
  EXPECT_EQ(poll(polled.data(), 1, 10000), 1);
  {
    const loopback::FewDescriptors none(0);
    std::vector<Proven> proven;
    EXPECT_FALSE(listener.Next(&proven));
    EXPECT_CONTAINS(listener.last_refusal().message(), "too many open files");
  }
  std::vector<Connection> connections;
  EXPECT_EQ(join(0, &connections).message(), "");
  EXPECT_EQ(ranks::Wait(other).code, 0);
  lobby.reset();
  const Status gone = join(1, &connections);
  EXPECT_EQ(gone.code(), ERROR_PEER_LOST);
  EXPECT_CONTAINS(gone.message(), "no connection to the host of rank 0");
  EXPECT_CONTAINS(gone.message(), "nobody listens at 127.0.0.1:");
}

TEST(RanksThatDoNotFitTogetherAreTold) {
  const auto at = [](int port, int rank, int size) { return SpecOf(rank, size, port); };
  int port = FreePort();
  ExpectAll({at(port, 0, 3), at(port, 1, 3), at(port, 1, 3)}, ERROR_RANK_MISMATCH,
            "rank 1 is claimed twice, by pid ");
  port = FreePort();
  ExpectAll({at(port, 0, 3), at(port, 1, 4)}, ERROR_RANK_MISMATCH, "rankSize is 3 on rank 0 (pid ");
  port = FreePort();
  ExpectAll({at(port, 0, 3), at(port, 2, 3), at(port, 7, 3)}, ERROR_RANK_MISMATCH,
            "is not one of the 3 ranks");
}

TEST(MissingRanksAreNamed) {
  const int port = FreePort();
  const pid_t member = ranks::Start([&] {
    const Status status = Meet(SpecOf(2, 4, port), 3);
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "ranks 1, 3 of 4");
  });
  const Status status = Meet(SpecOf(0, 4, port), 4);
  // The other rank's time is over first.
  EXPECT_EQ(status.code(), ERROR_TIMEOUT);
  EXPECT_CONTAINS(status.message(), "ranks 1, 3 of 4 did not connect within ");
  EXPECT_EQ(ranks::Wait(member).code, 0);
}

TEST(AJoinerSaysWhatBecameOfRankZero) {
  const int port = FreePort();
  const std::string at = "127.0.0.1:" + std::to_string(port);
  const auto expect = [&](const std::string& text) {
    const Status status = Meet(SpecOf(1, 2, port), 0.5);
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "rank 0 did not connect within 0.5 s");
    EXPECT_CONTAINS(status.message(), text);
  };
  expect("nobody listens at " + at);
  const Listener silent = ListenAt("127.0.0.1", port);
  expect(at + " accepted the connection, but has sent nothing");
  const Status nowhere = Meet(SpecOf(1, 2, port, "255.255.255.255"), 0.3);
  EXPECT_EQ(nowhere.code(), ERROR_TIMEOUT);
  EXPECT_CONTAINS(nowhere.message(), "255.255.255.255:");
}

// Ranks of another job, with another key, of another domain, and strangers; the group still meets.
TEST(NoStrangerKeepsAGroupFromMeeting) {
  const int port = FreePort();
  const ranks::Event came;
  std::vector<std::function<void()>> bodies;
  bodies.push_back([&] { EXPECT_EQ(Meet(SpecOf(0, 2, port)).message(), ""); });
  bodies.push_back([&] {
    RendezvousSpec spec = SpecOf(1, 2, port);
    spec.secret.key = "another key";
    const Status status = Meet(spec);
    EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "it has another key: set COLLOPS_JOB_KEY");
    came.Set();
  });
  bodies.push_back([&] {
    RendezvousSpec spec = SpecOf(1, 2, port);
    spec.secret.job_id = "another job";
    const Status status = Meet(spec, 3);
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), "it belongs to another job");
    came.Set();
  });
  bodies.push_back([&] {
    RendezvousSpec spec = SpecOf(1, 2, port);
    spec.domain = "tp";
    const Status status = Meet(spec, 3);
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    EXPECT_CONTAINS(status.message(), ", but rank 0 of this comm_domain has not said where it is");
    came.Set();
  });
  bodies.push_back([&] {
    std::vector<std::unique_ptr<Stranger>> strangers;
    const auto address = loopback::At("127.0.0.1", port);
    Await([&] {
      Connection probe(address);
      Await([&] {
        probe.Flush();
        return probe.state() != collops::control::ConnectionState::kConnecting;
      });
      return probe.alive();
    });
    for (int i = 0; i < 200; ++i) {
      strangers.push_back(std::make_unique<Stranger>(address));
      if (i % 3 == 0) strangers.back()->Say("GET / HTTP/1.1\r\n\r\n");
      if (i % 3 == 1) strangers.back()->Say(std::string(500, static_cast<char>(i)));
    }
    came.Set();
    Await([&] { return strangers.back()->HungUp(); });
  });
  bodies.push_back([&] {
    came.Wait(4);
    EXPECT_EQ(Meet(SpecOf(1, 2, port)).message(), "");
  });
  InProcesses(bodies);
}

TEST(TheEndOfRankZeroIsReported) {
  const int port = FreePort();
  const pid_t leader = ranks::Start([&] { static_cast<void>(Meet(SpecOf(0, 4, port))); });
  const pid_t member = ranks::Start([&] {
    const Status status = Meet(SpecOf(1, 4, port));
    EXPECT_EQ(status.code(), ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "rank 0 ended during first contact");
  });
  ByHand rank(SpecOf(2, 4, port));
  rank.AwaitMissing("rank 3 of 4");
  loopback::Kill(leader);
  EXPECT_EQ(ranks::Wait(member).code, 0);
}

TEST(CtrlCAndStopEndTheWait) {
  const int port = FreePort();
  InterruptCheckSlot().store([] { return interrupted; });
  interrupted = true;
  for (const int rank : {0, 1}) {
    const Status status = Meet(SpecOf(rank, 2, port));
    EXPECT_EQ(status.code(), ERROR_ABORTED);
    EXPECT_EQ(status.message(), "first contact was interrupted");
  }
  interrupted = false;
  InterruptCheckSlot().store(nullptr);
  for (const int rank : {0, 1}) {
    const auto rendezvous = Rendezvous::Create(SpecOf(rank, 2, port));
    std::vector<Row> rows;
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      rendezvous->Stop();
    });
    const Status status = rendezvous->Complete(Deadline::After(kMeetS), &rows);
    stopper.join();
    EXPECT_EQ(status.message(), "first contact was stopped");
  }
}
