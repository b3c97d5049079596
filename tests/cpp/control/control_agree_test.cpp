// What a backend with a vendor's engine needs of Control: comparing calls without moving data, and
// seeing without waiting that a rank has ended.
#include <string>
#include <vector>

#include "ranks.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::Status;

// Counts and displacements of two ranks.
struct Numbers {
  std::vector<int64_t> counts = {3, 5};
  std::vector<int64_t> displs = {0, 3};
};

Agreement Gather(const Numbers& numbers) {
  Agreement agreement("AllGatherV");
  agreement.EqualText("dtype", "float16")
      .EqualList("recvCounts", numbers.counts.data(), 2)
      .EqualList("rdispls", numbers.displs.data(), 2);
  return agreement;
}

Agreement Scatter(const Numbers& numbers, const char* reduction = "sum") {
  Agreement agreement("ReduceScatterV");
  agreement.EqualText("dtype", "float16")
      .EqualText("reduceType", reduction)
      .EqualShape("x's shape", {8, 1})
      .EqualList("sendCounts", numbers.counts.data(), 2)
      .EqualList("sdispls", numbers.displs.data(), 2);
  return agreement;
}

void ExpectNamed(const Status& status, const std::string& field) {
  EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
  EXPECT_CONTAINS(status.message(), field);
}

}  // namespace

TEST(EqualCallsPassAndNothingMoves) {
  ranks::RunThreads(2, [](int, Communicator& communicator) {
    const Numbers numbers;
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(ControlOf(communicator).Peek("AllGatherV").message(), "");
      EXPECT_EQ(communicator.Agree(Gather(numbers)).message(), "");
      EXPECT_EQ(communicator.Agree(Scatter(numbers)).message(), "");
    }
  });
}

TEST(CountsOfAGatherAreCompared) {
  ranks::RunThreads(2, [](int rank, Communicator& communicator) {
    Numbers numbers;
    numbers.counts[1] += rank;
    ExpectNamed(communicator.Agree(Gather(numbers)), "recvCounts[1] is ");
  });
}

TEST(TheReductionOfAScatterIsCompared) {
  ranks::RunThreads(2, [](int rank, Communicator& communicator) {
    const Numbers numbers;
    ExpectNamed(communicator.Agree(Scatter(numbers, rank == 1 ? "max" : "sum")), "reduceType is ");
  });
}

TEST(TheOperatorIsCompared) {
  ranks::RunThreads(2, [](int rank, Communicator& communicator) {
    const Numbers numbers;
    const Status status =
        rank == 0 ? communicator.Agree(Gather(numbers)) : communicator.Agree(Scatter(numbers));
    ExpectNamed(status, "the operator is ");
  });
}

TEST(ARankThatHasEndedIsSeenWithoutWaiting) {
  const collops::JobIdentity job = ranks::FreshJob();
  const pid_t pid = ranks::Start([&] { EXPECT_TRUE(ranks::Make(job, 1, 2)->Barrier().ok()); });
  const auto communicator = ranks::Make(job, 0, 2);
  EXPECT_TRUE(
      ControlOf(*communicator).Peek("AllGatherV").ok());  // before first contact no rank is missing
  EXPECT_TRUE(communicator->Barrier().ok());
  EXPECT_EQ(ranks::Wait(pid).code, 0);
  const Status status = ControlOf(*communicator).Peek("AllGatherV");
  EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "rank 1 (pid " + std::to_string(pid) + ")");
}

TEST(AnAbortIsSeenWithoutWaiting) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    Status status = communicator.Barrier();
    if (rank == 0) return communicator.Abort("HCCL gave up");
    while (status.ok()) status = ControlOf(communicator).Peek("AllGatherV");
    EXPECT_CONTAINS(status.message(), "HCCL gave up");
  });
}
