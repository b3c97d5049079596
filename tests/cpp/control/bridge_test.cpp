// Control over two boards that a fake connection joins, which delays and has little room.
#include "control/bridge_cases.h"
#include "control/fake_bridge.h"

namespace {

using namespace hosts;
using fake::Faults;
using fake::Link;

constexpr int kRanks = 4;

Hosts TwoHosts(const Faults& faults = {}) {
  return Hosts(std::make_shared<Link>(faults), kTwoByTwo);
}

struct Weather {
  const char* name;
  Faults faults;
};
constexpr Weather kWeathers[] = {
    {"good", {}},
    {"delays", {700, 64}},
    {"little room", {0, 1}},
    {"delays and little room", {200, 3}},
};

}  // namespace

TEST(ControlIsTheSameOnTwoHosts) {
  for (const Weather& weather : kWeathers) {
    for (const Case& test : ControlCases()) {
      for (const int variant : VariantsOf(test)) {
        Hosts hosts = TwoHosts(weather.faults);
        if (!RunCase(hosts, test, variant)) std::printf("  weather: %s\n", weather.name);
      }
    }
  }
}

// Ranks leave as soon as they have finished; slower ranks still get all earlier updates.
TEST(TheLastStepIsCompleteOnAllHosts) {
  for (int i = 0; i < 40; ++i) {
    Hosts hosts = TwoHosts({300, 2});
    OnHosts(hosts, kTimeoutS, [](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ShareBytes(rank, 0, comm);
    });
  }
}

TEST(AWatcherWaitsForTheLastStepOfItsHost) {
  for (const bool fails : {false, true}) {
    Hosts hosts = TwoHosts();
    LeaveBeforeItsHost(hosts, fails);
  }
}

TEST(TheEndOfAProcessIsSeenOnAllHosts) {
  for (const int ended : {0, 1, 3}) {
    Hosts hosts = TwoHosts();
    EndAProcess(hosts, ended);
  }
}

TEST(AConnectionThatIsCutIsALoss) {
  Hosts hosts = TwoHosts();
  CutTheConnection(hosts);
}

TEST(BoardsAreUpdatedWhileRanksCompute) {
  Hosts hosts = TwoHosts();
  LookWhileComputing(hosts);
}

TEST(AStoppedWatcherIsNamedAtTheTimeOut) {
  for (const bool from_the_start : {false, true}) {
    Hosts hosts = TwoHosts();
    StopAWatcher(hosts, from_the_start);
  }
}

TEST(AWatcherThatWasStoppedMissesNothing) {
  Hosts hosts = TwoHosts({0, 4});
  StopWatchersForAWhile(hosts);
}

TEST(AHostThatSendsInvalidNewsIsCutOff) {
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
    const auto link = std::make_shared<Link>(Faults{});
    Hosts hosts(link, kTwoByTwo);
    std::atomic<int> met{0};
    OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ++met;
      if (rank >= 2) return AwaitCount(met, 6);
      AwaitCount(met, 4);
      if (rank == 0) link->Insert(1, lie);
      ExpectHostLost(comm.Barrier(), 1);
      ++met;
    });
  }
}
