// What a backend with an engine of its own needs of shm: calls that are compared and move nothing,
// and ranks that have ended, seen without waiting.
#include <cstring>
#include <string>
#include <vector>

#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::DType;
using collops::ReduceOp;
using collops::ReduceScatterVCall;
using collops::Status;

// Two counts and displacements; device memory, which nobody may touch here.
struct Numbers {
  std::vector<int64_t> counts = {3, 5};
  std::vector<int64_t> displs = {0, 3};
};

void* Untouchable() {
  return reinterpret_cast<void*>(uintptr_t{8});
}

AllGatherVCall Gather(const Numbers& numbers) {
  AllGatherVCall call;
  call.dtype = DType::kFloat16;
  call.x = call.output = Untouchable();
  call.recv_counts = numbers.counts.data();
  call.rdispls = numbers.displs.data();
  return call;
}

ReduceScatterVCall Scatter(const Numbers& numbers) {
  ReduceScatterVCall call;
  call.dtype = DType::kFloat16;
  call.x = call.output = Untouchable();
  call.x_shape = {8, 1};
  call.send_counts = numbers.counts.data();
  call.sdispls = numbers.displs.data();
  return call;
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
      EXPECT_EQ(communicator.FindLoss().message(), "");
      EXPECT_EQ(communicator.Compare(Gather(numbers)).message(), "");
      EXPECT_EQ(communicator.Compare(Scatter(numbers)).message(), "");
    }
  });
}

TEST(CountsOfAGatherAreCompared) {
  ranks::RunThreads(2, [](int rank, Communicator& communicator) {
    Numbers numbers;
    numbers.counts[1] += rank;
    ExpectNamed(communicator.Compare(Gather(numbers)), "recvCounts[1] is ");
  });
}

TEST(TheReductionOfAScatterIsCompared) {
  ranks::RunThreads(2, [](int rank, Communicator& communicator) {
    const Numbers numbers;
    ReduceScatterVCall call = Scatter(numbers);
    if (rank == 1) call.op = ReduceOp::kMax;
    ExpectNamed(communicator.Compare(call), "reduceType is ");
  });
}

TEST(TheOperatorIsCompared) {
  ranks::RunThreads(2, [](int rank, Communicator& communicator) {
    const Numbers numbers;
    const Status status =
        rank == 0 ? communicator.Compare(Gather(numbers)) : communicator.Compare(Scatter(numbers));
    ExpectNamed(status, "the operator is ");
  });
}

TEST(ARankThatHasEndedIsSeenWithoutWaiting) {
  const collops::JobIdentity job = ranks::FreshJob();
  const pid_t pid = ranks::Start([&] { EXPECT_TRUE(ranks::Make(job, 1, 2)->Barrier().ok()); });
  const auto communicator = ranks::Make(job, 0, 2);
  EXPECT_TRUE(communicator->FindLoss().ok());  // before first contact nobody is missed
  EXPECT_TRUE(communicator->Barrier().ok());
  EXPECT_EQ(ranks::Wait(pid).code, 0);
  const Status status = communicator->FindLoss();
  EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "rank 1 (pid " + std::to_string(pid) + ")");
}

TEST(AnAbortIsSeenWithoutWaiting) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    Status status = communicator.Barrier();
    if (rank == 0) return communicator.Abort("HCCL gave up");
    while (status.ok()) status = communicator.FindLoss();
    EXPECT_CONTAINS(status.message(), "HCCL gave up");
  });
}
