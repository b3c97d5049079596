// Control over two boards that a bridge connects: the conformance cases that need no data, on a
// connection that delays, breaks and has little room; and cases for several hosts.
#include "conformance/error_cases.h"
#include "conformance/group_cases.h"
#include "control/hosts.h"

namespace {

using namespace conformance;
using fake::Link;
using fake::OnTwoHosts;
using fake::TwoHosts;

constexpr double kTimeoutS = 30;

struct Weather {
  const char* name;
  Link::Faults faults;
};
constexpr Weather kWeathers[] = {
    {"good", {}},
    {"delays", {700, 0, 64}},
    {"little room", {0, 0, 1}},
    {"breaks and delays", {200, 23, 3}},
};

void RunCase(const Weather& weather, const Case& test, int variant) {
  const int before = check::Failures();
  std::memset(static_cast<void*>(&Shared()), 0, sizeof(Common));
  TwoHosts hosts(weather.faults);
  std::atomic<int> done{0};
  OnTwoHosts(hosts, test.timeout_s, [&](int rank, Communicator& comm) {
    test.body(rank, variant, comm);
    ++done;
    // Frames of a broken connection are sent again, which only a live rank can do.
    if (weather.faults.breaks_after > 0) AwaitCount(done, TwoHosts::kRanks);
  });
  ExpectOneText(TwoHosts::kRanks);
  if (check::Failures() == before) return;
  std::printf("  in: %s, %s, variant %d\n", weather.name, test.name, variant);
}

void Steps(int rank, int, Communicator& comm) {
  for (int i = 0; i < 60; ++i) {
    const int refuser = static_cast<int>(Hash(i, 3) % 12);
    const Kind kind = i % 3 == 0 ? Kind::kShare : Kind::kBarrier;
    if (rank == refuser) {
      EXPECT_EQ(comm.Refuse("an operator", Error(ERROR_INVALID_PARAM, "no")).message(), "");
    } else if (refuser < comm.size()) {
      EXPECT_CONTAINS(Try(kind, comm).message(), RankText(refuser) + "100");
    } else if (i % 4 == 0) {
      ShareBytes(rank, 0, comm);
    } else {
      EXPECT_EQ(Try(kind, comm).message(), "");
    }
  }
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void ExpectLost(const Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), text);
}

// Rank 0 ends its step and leaves while rank 1, whose watcher it runs, has yet to end that step,
// and rank 2 on the other host waits for rank 1. With `fails` rank 0 leaves because of a failure in
// its next step, before which all steps are complete.
void LeaveBeforeItsHost(bool fails) {
  TwoHosts hosts;
  OnTwoHosts(hosts, kTimeoutS, [fails](int rank, Communicator& comm) {
    const Agreement agreement("a step");
    control::Step* step = nullptr;
    const Status status = comm.control().Run("a step", [&]() -> Status {
      step = &comm.control().step();
      RETURN_IF_ERROR(step->Begin(agreement, kTimeoutS));
      step->Publish();
      RETURN_IF_ERROR(step->AwaitAll());
      const control::Member& speaker = step->endpoint().board().member(0);
      while (rank == 1 && speaker.left.load() == 0) std::this_thread::yield();
      // Longer than a watcher lives that does not wait for its host.
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return rank == 2 ? step->EndTogether() : step->End();
    });
    EXPECT_EQ(status.message(), "");
    if (rank != 0 || !fails) return;
    const Status failure = comm.control().Run("the next step", [&]() -> Status {
      RETURN_IF_ERROR(step->Begin(agreement, kTimeoutS));
      return Error(ERROR_OUT_OF_HOST_MEMORY, "no room");
    });
    EXPECT_EQ(failure.message(), "no room");
  });
}

// Any rank of that host may be the one that is named.
void ExpectHostLost(const Status& status, int host) {
  const auto text = [](int rank) {
    return RankText(rank) + std::to_string(1000 + rank) + "): the connection to its host is lost";
  };
  const bool first = status.message().find(text(2 * host)) != std::string::npos;
  ExpectLost(status, text(first ? 2 * host : 2 * host + 1));
}

}  // namespace

TEST(ControlIsTheSameOnTwoHosts) {
  for (const Weather& weather : kWeathers) {
    for (const Case& test : ErrorCases()) {
      for (const Kind kind : {Kind::kBarrier, Kind::kShare}) {
        RunCase(weather, test, static_cast<int>(kind));
      }
    }
    RunCase(weather, {"Barrier", {}, 1, kTimeoutS, Barriers}, 0);
    RunCase(weather, {"Share", {}, 1, kTimeoutS, ShareBytes}, 0);
  }
}

TEST(StepsOfAllKindsOverAConnectionThatBreaks) {
  for (const Weather& weather : kWeathers) RunCase(weather, {"steps", {}, 1, kTimeoutS, Steps}, 0);
  TwoHosts hosts({100, 7, 64});
  std::atomic<int> done{0};
  OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    Steps(rank, 0, comm);
    ++done;
    AwaitCount(done, TwoHosts::kRanks);
  });
  EXPECT_TRUE(hosts.link().breaks() > 20);
}

// Ranks leave as soon as they have finished; slower ranks still get all earlier news.
TEST(TheLastStepIsCompleteOnAllHosts) {
  for (int i = 0; i < 40; ++i) {
    TwoHosts hosts({300, 0, 2});
    OnTwoHosts(hosts, kTimeoutS, [](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ShareBytes(rank, 0, comm);
    });
  }
}

TEST(AWatcherWaitsForTheLastStepOfItsHost) {
  for (const bool fails : {false, true}) LeaveBeforeItsHost(fails);
}

TEST(TheEndOfAProcessIsSeenOnAllHosts) {
  for (const int ended : {0, 1, 3}) {
    TwoHosts hosts;
    std::atomic<int> met{0};
    OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ++met;
      if (rank == ended) {
        AwaitCount(met, TwoHosts::kRanks);
        hosts.EndProcess(rank);
        AwaitCount(met, 2 * TwoHosts::kRanks - 1);
        return;
      }
      const auto start = std::chrono::steady_clock::now();
      const std::string who = RankText(ended) + std::to_string(1000 + ended) + ")";
      ExpectLost(comm.Barrier(), who + " ended without a word");
      EXPECT_TRUE(SecondsSince(start) < kTimeoutS / 2);
      ++met;
    });
  }
}

TEST(AConnectionThatIsCutIsALoss) {
  TwoHosts hosts;
  std::atomic<int> met{0};
  OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, TwoHosts::kRanks);
    if (rank == 3) hosts.link().Cut();
    if (rank == 3) ++met;
    AwaitCount(met, TwoHosts::kRanks + 1);
    ExpectHostLost(comm.Barrier(), 1 - TwoHosts::HostOf(rank));
  });
}

// No rank waits between calls: the board must be up to date when it is read.
TEST(BoardsAreUpdatedWhileRanksCompute) {
  TwoHosts hosts;
  std::atomic<int> met{0};
  OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, TwoHosts::kRanks);
    if (rank == 3) return comm.Abort("it has seen enough");
    Status status;
    const auto start = std::chrono::steady_clock::now();
    while (status.ok() && SecondsSince(start) < kTimeoutS) status = comm.control().Peek("Barrier");
    EXPECT_EQ(status.code(), ERROR_ABORTED);
    EXPECT_CONTAINS(status.message(), "rank 3 aborted: it has seen enough");
  });
}

// The watcher of host 1 is stopped: rank 3, whose state it sends, must still be named.
TEST(AStoppedWatcherIsNamedAtTheTimeOut) {
  for (const bool from_the_start : {false, true}) {
    TwoHosts hosts;
    std::atomic<int> met{0};
    std::atomic<int> done{0};
    if (from_the_start) hosts.link().Stop(1);
    OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
      if (!from_the_start) EXPECT_EQ(comm.Barrier().message(), "");
      comm.set_timeout_s(2.5);
      ++met;
      AwaitCount(met, TwoHosts::kRanks);
      if (rank == 2) hosts.link().Stop(1);
      if (rank == 2) ++met;
      AwaitCount(met, TwoHosts::kRanks + 1);
      const Status status = comm.Barrier();
      EXPECT_EQ(status.code(), ERROR_TIMEOUT);
      const char* const that = rank < 2 ? "that" : "this";
      EXPECT_CONTAINS(status.message(), std::string("on another host; rank 2 (pid 1002), which ") +
                                            "speaks for " + that + " host, has been silent for ");
      if (++done == TwoHosts::kRanks) hosts.link().GoOn(1);
    });
  }
}

// A watcher that is stopped for a while delays calls and causes no error.
TEST(AWatcherThatWasStoppedMissesNothing) {
  TwoHosts hosts({0, 11, 4});
  std::atomic<int> done{0};
  OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    for (int i = 0; i < 5; ++i) {
      if (rank == 1) hosts.link().Stop(i % 2);
      std::thread waker;
      if (rank == 1) {
        waker = std::thread([&hosts, i] {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          hosts.link().GoOn(i % 2);
        });
      }
      Steps(rank, 0, comm);
      if (waker.joinable()) waker.join();
    }
    ++done;
    AwaitCount(done, TwoHosts::kRanks);
  });
}

TEST(AHostThatSendsInvalidNewsIsCutOff) {
  using collops::control::Encode;
  using collops::control::HeadKind;
  using collops::control::News;
  using collops::control::NewsKind;
  using collops::control::StepWord;
  const std::vector<std::byte> agreement(
      static_cast<size_t>(Agreement::EncodedBytes(TwoHosts::kRanks)), std::byte{0xff});
  const auto call = [&](int rank, uint64_t word) {
    News news{NewsKind::kHead, rank, word};
    news.agreement = agreement.data();
    return Encode(news, TwoHosts::kRanks);
  };
  collops::control::Frame cut_short = call(2, StepWord(2, HeadKind::kCall));
  cut_short.pop_back();
  const std::vector<collops::control::Frame> lies = {
      {},
      cut_short,
      call(1, StepWord(2, HeadKind::kCall)),      // a rank of the other host
      call(2, StepWord(4, HeadKind::kCall)),      // a step that is not possible yet
      call(2, StepWord(2, HeadKind::kCall) | 3),  // neither a call nor a refusal
      Encode({NewsKind::kHead, 2, StepWord(2, HeadKind::kCall)}, TwoHosts::kRanks),
      Encode({NewsKind::kFinished, 3, 1000}, TwoHosts::kRanks),
      Encode({NewsKind::kLeft, 0}, TwoHosts::kRanks),
      Encode({static_cast<NewsKind>(77), 2}, TwoHosts::kRanks),
      Encode({NewsKind::kLeft, -1}, TwoHosts::kRanks),
      Encode({NewsKind::kLeft, 4}, TwoHosts::kRanks),
  };
  for (const collops::control::Frame& lie : lies) {
    TwoHosts hosts;
    std::atomic<int> met{0};
    OnTwoHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      ++met;
      if (rank >= 2) return AwaitCount(met, 6);
      AwaitCount(met, 4);
      if (rank == 0) hosts.link().Insert(1, lie);
      ExpectHostLost(comm.Barrier(), 1);
      ++met;
    });
  }
}
