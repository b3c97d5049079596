// Fused calls on shm: which error the others get if a rank dies, refuses or disagrees in the middle
// of one.
#include <csignal>

#include "shm/adding_call.h"

namespace {

using adding::Adding;
using adding::Clock;
using adding::Fill;
using adding::SecondsSince;
using collops::Communicator;
using collops::FusedCall;
using collops::Status;

// Computes for 2 s; calls Progress() now and then, and never waits.
Status Compute(int /*rank*/, FusedCall* call) {
  const Clock::time_point start = Clock::now();
  while (SecondsSince(start) < 2) {
    COLLOPS_RETURN_IF_ERROR(call->Progress());
    usleep(1000);
  }
  return collops::Ok();
}

Status DieSoon(int /*rank*/, FusedCall* /*call*/) {
  usleep(200000);
  raise(SIGKILL);
  return collops::Ok();
}

// A call in which ranks read each other's matrices part by part, with more parts than the stage
// holds, when another rank does something 50 ms late.
struct Late {
  static constexpr int64_t kRows = 900;
  static constexpr int64_t kRowBytes = 4000;
  std::vector<int32_t> x = std::vector<int32_t>(kRows * kRowBytes / 4);
  Adding call;

  Late() {
    call.rows = kRows;
    call.row_bytes = kRowBytes;
  }

  // A correct call of all ranks with its own data.
  void Right(int rank, int round, Communicator& comm) {
    int64_t expected = 0;
    const auto count = static_cast<int64_t>(x.size());
    for (int r = 0; r < comm.size(); ++r) expected += Fill(r, round, count, x.data());
    Fill(rank, round, count, x.data());
    EXPECT_EQ(call.Run(&comm, x.data()).message(), "");
    EXPECT_EQ(call.sum, expected);
  }
};

}  // namespace

TEST(ARankThatDiesIsReportedToOneThatComputes) {
  const collops::JobIdentity job = ranks::FreshJob();
  const pid_t dying = ranks::Start([&] {
    const auto comm = ranks::Make(job, 1, 2);
    std::vector<int32_t> x(50);
    Adding call;
    call.meanwhile = DieSoon;
    static_cast<void>(call.Run(comm.get(), x.data()));
  });
  const pid_t survivor = ranks::Start([&] {
    const auto comm = ranks::Make(job, 0, 2);
    EXPECT_EQ(comm->Connect().message(), "");
    std::vector<int32_t> x(50);
    Adding call;
    call.meanwhile = Compute;
    const Clock::time_point start = Clock::now();
    const Status status = call.Run(comm.get(), x.data());
    EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
    EXPECT_CONTAINS(status.message(), "rank 1 (pid ");
    EXPECT_TRUE(SecondsSince(start) < check::Patience(10));
  });
  EXPECT_FALSE(ranks::Wait(dying).exited);
  const ranks::Ended ended = ranks::Wait(survivor);
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.code, 0);
}

TEST(ALateRefusalIsReportedInTheMiddle) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    Late late;
    for (int round = 0; round < 6; ++round) {
      late.Right(rank, 2 * round, comm);
      Fill(rank, 2 * round + 1, static_cast<int64_t>(late.x.size()), late.x.data());
      const Clock::time_point start = Clock::now();
      if (rank == round % 3) {
        usleep(50000);
        const Status bad(collops::ERROR_INVALID_PARAM, "the weight is wrong");
        EXPECT_TRUE(comm.Refuse("LinearParallel", bad).ok());
      } else {
        const Status status = late.call.Run(&comm, late.x.data());
        EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
        EXPECT_CONTAINS(status.message(), "the weight is wrong");
      }
      EXPECT_FALSE(comm.failed());
      EXPECT_TRUE(SecondsSince(start) < check::Patience(10));
    }
    late.Right(rank, 99, comm);
  });
}

TEST(ADisagreementThatComesLateEndsTheGroup) {
  ranks::Run(3, [](int rank, Communicator& comm) {
    Late late;
    late.Right(rank, 0, comm);
    if (rank == 1) {
      usleep(50000);
      late.call.k = 11;
    }
    const Clock::time_point start = Clock::now();
    const Status status = late.call.Run(&comm, late.x.data());
    EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
    EXPECT_CONTAINS(status.message(), "k is ");
    EXPECT_CONTAINS(status.message(), "rank 1");
    EXPECT_TRUE(SecondsSince(start) < check::Patience(10));
    EXPECT_TRUE(comm.failed());
  });
}
