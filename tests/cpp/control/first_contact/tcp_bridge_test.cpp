// The bridge over TCP: the cases of every bridge; order, bounds, and what a loss is.
#include "collops/comm/control/hosts/mesh.h"

#include <random>

#include "control/bridge_cases.h"
#include "control/first_contact/tcp_wire.h"

namespace {

using namespace hosts;
using loopback::Await;
using loopback::Ends;
using loopback::FrameOf;
using loopback::TextOf;
using tcp_hosts::Connection;
using tcp_hosts::Frame;
using tcp_hosts::TcpBridge;

Hosts Joined(const char* address = "127.0.0.1", const Wire::Delay& delay = {}) {
  return Hosts(std::make_shared<Wire>(2, delay, address), kTwoByTwo);
}

// Two hosts, the bridge of host 0 and a plain connection in place of the bridge of host 1.
struct OneBridge {
  OneBridge() {
    Ends ends;
    peer = std::move(*ends.first);
    std::vector<Connection> connections(2);
    connections[1] = std::move(*ends.second);
    bridge = std::make_unique<TcpBridge>(0, std::move(connections));
  }
  std::unique_ptr<TcpBridge> bridge;
  Connection peer;
};

std::vector<std::unique_ptr<TcpBridge>> Bridges(size_t num_hosts) {
  std::vector<std::vector<Connection>> ends(num_hosts);
  for (auto& row : ends) row.resize(num_hosts);
  for (size_t i = 0; i < num_hosts; ++i) {
    for (size_t j = 0; j < i; ++j) {
      Ends pair;
      ends[i][j] = std::move(*pair.first);
      ends[j][i] = std::move(*pair.second);
    }
  }
  std::vector<std::unique_ptr<TcpBridge>> bridges;
  for (size_t i = 0; i < num_hosts; ++i) {
    bridges.push_back(std::make_unique<TcpBridge>(static_cast<int>(i), std::move(ends[i])));
  }
  return bridges;
}

}  // namespace

TEST(ControlIsTheSameOverTcp) {
  std::mt19937 random(1);
  const auto delay = [&random](int, int) { return std::chrono::microseconds(random() % 700); };
  for (const Case& test : ControlCases()) {
    for (const int variant : VariantsOf(test)) {
      Hosts hosts = Joined("::1");
      RunCase(hosts, test, variant);
      Hosts slow = Joined("127.0.0.1", delay);
      RunCase(slow, test, variant);
    }
  }
}

TEST(TheLastStepIsCompleteOnAllHosts) {
  for (int i = 0; i < 40; ++i) {
    Hosts hosts = Joined();
    OnHosts(hosts, kTimeoutS, [](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ShareBytes(rank, 0, comm);
    });
  }
}

TEST(AWatcherWaitsForTheLastStepOfItsHost) {
  for (const bool fails : {false, true}) {
    Hosts hosts = Joined();
    LeaveBeforeItsHost(hosts, fails);
  }
}

TEST(TheEndOfAProcessIsSeenOnAllHosts) {
  for (const int ended : {0, 1, 3}) {
    Hosts hosts = Joined();
    EndAProcess(hosts, ended);
  }
}

TEST(AConnectionThatIsCutIsALoss) {
  Hosts hosts = Joined();
  CutTheConnection(hosts);
}

TEST(BoardsAreUpdatedWhileRanksCompute) {
  Hosts hosts = Joined();
  LookWhileComputing(hosts);
}

TEST(StoppedWatchersAreNamedAndMissNothing) {
  for (const bool from_the_start : {false, true}) {
    Hosts hosts = Joined();
    StopAWatcher(hosts, from_the_start);
  }
  Hosts hosts = Joined();
  StopWatchersForAWhile(hosts);
}

TEST(AHostThatSendsInvalidNewsIsCutOff) {
  constexpr int kRanks = 4;
  using collops::control::Encode;
  using collops::control::HeadKind;
  using collops::control::StatusKind;
  using collops::control::StatusUpdate;
  using collops::control::StepWord;
  const std::vector<std::byte> agreement(static_cast<size_t>(Agreement::EncodedBytes(kRanks)),
                                         std::byte{0xff});
  const auto call = [&](int rank, uint64_t word) {
    StatusUpdate update{StatusKind::kHead, rank, word};
    update.agreement = agreement.data();
    return Encode(update, kRanks);
  };
  collops::control::Frame cut_short = call(2, StepWord(2, HeadKind::kCall));
  cut_short.pop_back();
  const std::vector<collops::control::Frame> lies = {
      {},
      cut_short,
      call(1, StepWord(2, HeadKind::kCall)),      // a rank of the other host
      call(2, StepWord(4, HeadKind::kCall)),      // a step that is not possible yet
      call(2, StepWord(2, HeadKind::kCall) | 3),  // neither a call nor a refusal
      Encode({StatusKind::kHead, 2, StepWord(2, HeadKind::kCall)}, kRanks),
      Encode({StatusKind::kFinished, 3, 1000}, kRanks),
      Encode({StatusKind::kLeft, 0}, kRanks),
      Encode({static_cast<StatusKind>(77), 2}, kRanks),
      Encode({StatusKind::kLeft, -1}, kRanks),
      Encode({StatusKind::kLeft, 4}, kRanks),
  };
  for (const collops::control::Frame& lie : lies) {
    Hosts hosts = Joined();
    std::atomic<int> met{0};
    OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ++met;
      if (rank >= 2) return AwaitCount(met, 6);
      AwaitCount(met, 4);
      if (rank == 0) hosts.wire().Insert(1, 0, lie);
      ExpectHostLost(comm.Barrier(), 1);
      ++met;
    });
  }
}

// Frames of each connection in order, from all of them, also where one host sends without end.
TEST(FramesOfEachHostAreTakenInOrder) {
  const auto bridges = Bridges(4);
  constexpr int kFrames = 300;
  int sent[4] = {};
  int taken[4] = {};
  Await([&] {
    for (int from = 1; from < 4; ++from) {
      TcpBridge& bridge = *bridges[static_cast<size_t>(from)];
      const std::string text = std::to_string(from) + ":" + std::to_string(sent[from]);
      if (sent[from] < kFrames && bridge.Tell(0, FrameOf(text + std::string(3000, 'x')))) {
        ++sent[from];
      }
      int host = -1;
      Frame none;
      EXPECT_FALSE(bridge.Take(&host, &none));  // confirmations are no frames
    }
    int host = -1;
    Frame frame;
    for (int i = 0; i < 2 && bridges[0]->Take(&host, &frame); ++i) {
      const std::string want = std::to_string(host) + ":" + std::to_string(taken[host]++);
      EXPECT_EQ(TextOf(frame), want + std::string(3000, 'x'));
    }
    for (int from = 1; from < 4; ++from) EXPECT_FALSE(bridges[0]->Lost(from));
    return taken[1] == kFrames && taken[2] == kFrames && taken[3] == kFrames;
  });
}

// A host whose process is stopped takes nothing. What is sent to it ends well before its receive
// buffer is full, so TCP has no reason to give the connection up.
TEST(AStoppedHostIsNotLost) {
  const auto bridges = Bridges(2);
  int told = 0;
  const auto start = std::chrono::steady_clock::now();
  while (SecondsSince(start) <= 6) {
    while (bridges[0]->Tell(1, FrameOf(std::string(50, 'b')))) ASSERT_TRUE(++told < 5000);
    int host = -1;
    Frame frame;
    EXPECT_FALSE(bridges[0]->Take(&host, &frame));
    ASSERT_TRUE(!bridges[0]->Lost(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // It goes on: all arrives, and there is room again.
  int taken = 0;
  Await([&] {
    int host = -1;
    Frame frame;
    while (bridges[1]->Take(&host, &frame)) ++taken;
    return taken == told;
  });
  Await([&] {
    int host = -1;
    Frame frame;
    static_cast<void>(bridges[0]->Take(&host, &frame));
    return bridges[0]->Tell(1, FrameOf("more"));
  });
}

TEST(AHostIsLostAfterItsLastFrame) {
  auto bridges = Bridges(2);
  EXPECT_TRUE(bridges[1]->Tell(0, FrameOf("its last word")));
  bridges[1].reset();
  int host = -1;
  Frame frame;
  EXPECT_FALSE(bridges[0]->Lost(1));
  Await([&] { return bridges[0]->Take(&host, &frame); });
  EXPECT_EQ(host, 1);
  EXPECT_EQ(TextOf(frame), "its last word");
  Await([&] {
    EXPECT_FALSE(bridges[0]->Take(&host, &frame));
    return bridges[0]->Lost(1);
  });
  EXPECT_CONTAINS(bridges[0]->WhyLost(1), "closed the connection");
  EXPECT_FALSE(bridges[0]->Tell(1, FrameOf("is anybody there?")));
  std::vector<pollfd> polled;
  bridges[0]->AddPolled(&polled);
  EXPECT_TRUE(polled.empty());
}

TEST(FramesThatCannotBeEndTheConnection) {
  const Frame bad[] = {FrameOf(""), FrameOf("\x03news"), FrameOf("\x02short"),
                       FrameOf(std::string("\x02\0\0\0\0\0\0\0\x09", 9)),   // more than was sent
                       FrameOf(std::string("\x02\0\0\0\0\0\0\0\0x", 10))};  // too long
  for (const Frame& frame : bad) {
    OneBridge one;
    EXPECT_TRUE(one.peer.Send(frame));
    int host = -1;
    Frame taken;
    Await([&] {
      EXPECT_FALSE(one.bridge->Take(&host, &taken));
      return one.bridge->Lost(1);
    });
    EXPECT_CONTAINS(one.bridge->WhyLost(1), "sent an invalid frame");
  }
}

// The bridge of a host that is gone ends at once; that of a host that takes nothing, in time.
TEST(TheEndOfABridgeIsBounded) {
  for (const bool gone : {false, true}) {
    OneBridge one;
    while (one.bridge->Tell(1, FrameOf(std::string(9000, 'x')))) continue;
    if (gone) one.peer = Connection();
    const auto start = std::chrono::steady_clock::now();
    one.bridge.reset();
    EXPECT_TRUE(SecondsSince(start) < TcpBridge::kFinishS + check::Patience(1));
  }
}
