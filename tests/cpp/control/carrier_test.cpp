// Steps whose agreement a carrier takes to the other hosts: as on one board, and no frame for a
// call that goes well.
#include <chrono>
#include <random>

#include "control/bridge_cases.h"

namespace {

using namespace hosts;
using collops::control::HeadKind;
using collops::control::StepWord;

const HostOf kUneven = {0, 0, 0, 1, 1};
const HostOf kOneByOne = {0, 1};

// With or without a random delay of each frame, up to so many microseconds.
std::shared_ptr<Wire> Joined(unsigned most_delay_us = 0) {
  if (most_delay_us == 0) return std::make_shared<Wire>(2);
  const auto delay = [random = std::make_shared<std::mt19937>(1), most_delay_us](int, int) {
    return std::chrono::microseconds((*random)() % most_delay_us);
  };
  return std::make_shared<Wire>(2, delay);
}

Status Agree(Communicator& comm, const Agreement& agreement) {
  return Made(comm, [&] { return comm.Agree(agreement); });
}

Agreement Rows(int64_t rows) {
  Agreement agreement("Toy");
  agreement.Equal("rows", rows);
  return agreement;
}

// All ranks end with this error, which has one text, before the time-out.
void ExpectMismatch(const HostOf& host_of, const std::vector<std::string>& texts,
                    const std::function<Status(int, Communicator&)>& call) {
  const auto link = Joined();
  Hosts hosts(link, host_of);
  hosts.UseCarriers();
  std::memset(static_cast<void*>(&Shared()), 0, sizeof(Common));
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    const auto start = std::chrono::steady_clock::now();
    const Status status = call(rank, comm);
    EXPECT_TRUE(SecondsSince(start) < kTimeoutS / 2);
    EXPECT_EQ(status.code(), ERROR_RANK_MISMATCH);
    for (const std::string& text : texts) EXPECT_CONTAINS(status.message(), text);
    Tell(rank, status.message());
  });
  ExpectOneText(hosts.size());
}

}  // namespace

TEST(ControlIsTheSameWithACarrier) {
  for (const unsigned delay_us : {0U, 700U}) {
    for (const Case& test : ControlCases()) {
      for (const int variant : VariantsOf(test)) {
        Hosts hosts(Joined(delay_us), kTwoByTwo);
        hosts.UseCarriers();
        RunCase(hosts, test, variant);
      }
    }
  }
}

TEST(ControlIsTheSameWithACarrierBetweenUnevenHosts) {
  for (const HostOf& host_of : {kUneven, HostOf{0, 0, 1, 1, 1}}) {
    for (const Case& test : ControlCases()) {
      Hosts hosts(Joined(), host_of);
      hosts.UseCarriers();
      RunCase(hosts, test, static_cast<int>(Kind::kBarrier));
    }
  }
}

TEST(ACallThatGoesWellSendsNoFrame) {
  constexpr int kCalls = 2000;
  const auto link = Joined();
  Hosts hosts(link, kTwoByTwo);
  fake::HeadPost& post = hosts.UseCarriers();
  const auto start = std::chrono::steady_clock::now();
  OnHosts(hosts, kTimeoutS, [&](int, Communicator& comm) {
    for (int i = 0; i < kCalls; ++i) EXPECT_EQ(comm.Barrier().message(), "");
  });
  // Beats; two heads and the end of a step of each rank, if they stayed as they are for 20 ms, as
  // on a busy machine; and how all ranks leave.
  const double periods = SecondsSince(start) / 0.02;
  EXPECT_TRUE(link->sent() < 13 * periods + 30);
  EXPECT_EQ(post.sent(), kCalls * hosts.size());
}

TEST(HostsThatDifferAreTold) {
  const auto call = [](const HostOf& host_of) {
    return [&host_of](int rank, Communicator& comm) {
      return Agree(comm, Rows(7 + host_of[static_cast<size_t>(rank)]));
    };
  };
  ExpectMismatch(kTwoByTwo, {"rows is 7 on " + RankText(0), "8 on " + RankText(2)},
                 call(kTwoByTwo));
  ExpectMismatch(kUneven, {"rows is 7 on " + RankText(0), "8 on " + RankText(3)}, call(kUneven));
  ExpectMismatch(kOneByOne, {"rows is 7 on " + RankText(0), "8 on " + RankText(1)},
                 call(kOneByOne));
}

// Some ranks agree with a carrier, others share bytes, which needs the board.
TEST(AStepThatIsNotCarriedDiffersFromOneThatIs) {
  ExpectMismatch(kTwoByTwo, {"the operator is "}, [](int rank, Communicator& comm) {
    const int64_t mine = rank;
    int64_t all[4];
    return rank < 2 ? comm.Barrier()
                    : Made(
                          comm,
                          [&] { return comm.Share(Agreement("Sizes"), &mine, sizeof(mine), all); });
  });
}

// Rank 0 refuses while rank 3 has not arrived; what the others sent for that call is dropped.
TEST(ARefusalWhileARankOfAnotherHostHasNotArrived) {
  for (const HostOf& host_of : {kTwoByTwo, kUneven, HostOf{0, 1, 1, 1}}) {
    const int late = static_cast<int>(host_of.size()) - 1;
    Hosts hosts(Joined(), host_of);
    hosts.UseCarriers();
    std::atomic<int> told{0};
    OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
      for (int i = 1; i <= 20; ++i) {
        if (rank == 0) {
          EXPECT_EQ(comm.Refuse("Toy", Error(ERROR_INVALID_PARAM, "no")).message(), "");
        } else {
          if (rank == late) AwaitCount(told, i * (hosts.size() - 2));
          EXPECT_CONTAINS(Agree(comm, Rows(i)).message(), RankText(0) + "1000) refused call");
          if (rank != late) ++told;
        }
        EXPECT_EQ(Agree(comm, Rows(i)).message(), "");
      }
      ShareBytes(rank, 0, comm);
    });
  }
}

TEST(ARankThatStaysAwayIsNamed) {
  for (const int absent : {0, 1, 3}) {
    for (const bool differ : {false, true}) {
      Hosts hosts(Joined(), kTwoByTwo);
      hosts.UseCarriers();
      std::atomic<int> done{0};
      OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
        EXPECT_EQ(comm.Barrier().message(), "");
        comm.set_timeout_s(3.0);
        if (rank == absent) return AwaitCount(done, 3);
        const auto start = std::chrono::steady_clock::now();
        // Host 0 and host 1 differ.
        const Status status = Agree(comm, Rows(differ && rank >= 2 ? 8 : 7));
        EXPECT_TRUE(SecondsSince(start) < check::Patience(10));
        EXPECT_EQ(status.code(), differ ? ERROR_RANK_MISMATCH : ERROR_TIMEOUT);
        EXPECT_CONTAINS(status.message(), RankText(absent) + std::to_string(1000 + absent) + "), ");
        EXPECT_CONTAINS(status.message(), "has not entered it");
        if (differ) EXPECT_CONTAINS(status.message(), "rows is 7 on rank ");
        ++done;
      });
    }
  }
}

TEST(HeadsOfEarlierStepsAreDropped) {
  Hosts hosts(Joined(), kTwoByTwo);
  fake::HeadPost& post = hosts.UseCarriers();
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    for (uint64_t i = 0; i < 50; ++i) {
      const int from = (rank + 2) % 4;
      post.Insert(from, rank, {StepWord(i, HeadKind::kCarried), 77, 77});
      EXPECT_EQ(Agree(comm, Rows(static_cast<int64_t>(i))).message(), "");
    }
  });
}

TEST(AHeadThatCannotBeYetEndsTheCall) {
  Hosts hosts(Joined(), kTwoByTwo);
  fake::HeadPost& post = hosts.UseCarriers();
  post.Insert(2, 0, {StepWord(9, HeadKind::kCarried), 0, 0});
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    const Status status = comm.Barrier();
    // A rank that had all it needs has ended its step.
    if (rank == 0) ExpectLost(status, "rank 2 (pid 1002) is in an invalid call");
    if (!status.ok()) EXPECT_CONTAINS(status.message(), "is in an invalid call");
    EXPECT_CONTAINS(comm.Barrier().message(), "is in an invalid call");
  });
}

TEST(ASourceThatIsLostIsReported) {
  Hosts hosts(Joined(), kTwoByTwo);
  fake::HeadPost& post = hosts.UseCarriers();
  std::atomic<int> met{0};
  OnHosts(hosts, kTimeoutS, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, hosts.size());
    if (rank == 3) post.Lose(3);
    if (rank == 3) ++met;
    AwaitCount(met, hosts.size() + 1);
    const auto start = std::chrono::steady_clock::now();
    Status status = comm.Barrier();
    if (status.ok()) status = comm.Barrier();
    EXPECT_EQ(status.code(), ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "is lost: the connection is cut");
    EXPECT_TRUE(SecondsSince(start) < check::Patience(10));
  });
}

TEST(TheEndOfAProcessIsSeenWithACarrier) {
  for (const int ended : {0, 1, 3}) {
    Hosts hosts(Joined(), kTwoByTwo);
    hosts.UseCarriers();
    EndAProcess(hosts, ended);
  }
}

TEST(TheLastStepIsCompleteOnAllHostsWithACarrier) {
  for (int i = 0; i < 40; ++i) {
    Hosts hosts(Joined(300), kTwoByTwo);
    hosts.UseCarriers();
    OnHosts(hosts, kTimeoutS, [](int, Communicator& comm) {
      for (int step = 0; step < 3; ++step) EXPECT_EQ(comm.Barrier().message(), "");
    });
  }
}
