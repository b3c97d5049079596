// What a step makes of a failure of the group that comes at the same moment: heads from before it
// count, and none is published after it.
#include "conformance/ground.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::Status;
using collops::control::Step;
using conformance::AwaitCount;

}  // namespace

// Where heads and failures travel to other hosts, those of a snapshot may be heard heads first.
TEST(WhoBeginsAfterAFailureIsNotHeard) {
  std::atomic<int> met{0};
  std::atomic<int> failed{0};
  std::atomic<int> tried{0};
  ranks::RunThreads(2, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, 2);
    const uint64_t next = comm.control().step_number() + 1;
    if (rank == 0) {
      comm.Abort("enough");
      failed = 1;
      AwaitCount(tried, 1);
      EXPECT_FALSE(comm.control().endpoint().HasBegun(1, next));
      return;
    }
    AwaitCount(failed, 1);
    const Status status = comm.Barrier();
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
    EXPECT_CONTAINS(status.message(), "enough");
    tried = 1;
  });
}

// All that this rank waits for comes just before the failure, after it has looked in vain.
TEST(WhatCameBeforeAFailureIsThere) {
  ranks::RunThreads(1, [](int, Communicator& comm) {
    const Agreement agreement("a step");
    const Status status = comm.control().Run("a step", [&]() -> Status {
      Step& step = comm.control().step();
      RETURN_IF_ERROR(step.Begin(agreement, 20));
      int asked = 0;
      const auto ready = [&] {
        // The first time after the spins, during which nobody looks for failures.
        if (asked++ == collops::control::kSpins) comm.Abort("enough");
        return asked > collops::control::kSpins + 1;
      };
      EXPECT_EQ(step.Until(ready).message(), "");
      EXPECT_EQ(asked, collops::control::kSpins + 2);
      return step.End();
    });
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
  });
}

// The same where it is the loss of the rank that failed which is seen first.
TEST(WhatCameBeforeALossIsThere) {
  std::atomic<int> met{0};
  std::atomic<int> looks{0};
  std::atomic<int> left{0};
  ranks::RunThreads(2, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, 2);
    if (rank == 1) {
      AwaitCount(looks, 1);
      comm.Abort("enough");
      comm.Close("it closed its communicator");
      left = 1;
      return;
    }
    const Agreement agreement("a step");
    const Status status = comm.control().Run("a step", [&]() -> Status {
      Step& step = comm.control().step();
      RETURN_IF_ERROR(step.Begin(agreement, 20));
      // Between a look at what it waits for and one for losses.
      comm.control().set_drain([&] {
        looks = 1;
        AwaitCount(left, 1);
      });
      EXPECT_EQ(step.Until([&] { return left == 1; }).message(), "");
      return step.End();
    });
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
    comm.control().set_drain({});
  });
}
