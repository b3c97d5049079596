// A failure of the group at the same time as a step: heads from before it count, and none is
// published after it.
#include "conformance/ground.h"
#include "run_call.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::Status;
using collops::control::Step;
using conformance::AwaitCount;

}  // namespace

// On other hosts a head published after the failure could arrive before it.
TEST(AStepBegunAfterAFailureIsNotPublished) {
  std::atomic<int> met{0};
  std::atomic<int> failed{0};
  std::atomic<int> tried{0};
  ranks::RunThreads(2, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    ++met;
    AwaitCount(met, 2);
    const uint64_t next = ControlOf(comm).step_number() + 1;
    if (rank == 0) {
      comm.Abort("enough");
      failed = 1;
      AwaitCount(tried, 1);
      EXPECT_FALSE(ControlOf(comm).endpoint().HasBegun(1, next));
      return;
    }
    AwaitCount(failed, 1);
    const Status status = comm.Barrier();
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
    EXPECT_CONTAINS(status.message(), "enough");
    tried = 1;
  });
}

// All that this rank waits for arrives just before the failure, after `ready` was last false.
TEST(DataThatArrivedBeforeAFailureIsUsed) {
  ranks::RunThreads(1, [](int, Communicator& comm) {
    const Agreement agreement("a step");
    const Status status = RunCall(ControlOf(comm), "a step", [&]() -> Status {
      Step& step = ControlOf(comm).step();
      COLLOPS_RETURN_IF_ERROR(step.Begin(agreement, 20));
      int asked = 0;
      const auto ready = [&] {
        // At the first check after the spins, during which failures are not looked for.
        if (asked++ == collops::control::Spins::kMost) comm.Abort("enough");
        return asked > collops::control::Spins::kMost + 1;
      };
      EXPECT_EQ(step.Until(ready).message(), "");
      EXPECT_EQ(asked, collops::control::Spins::kMost + 2);
      return step.End();
    });
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
  });
}

// The same if the wait sees the loss of the failed rank first.
TEST(DataThatArrivedBeforeALossIsUsed) {
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
    const Status status = RunCall(ControlOf(comm), "a step", [&]() -> Status {
      Step& step = ControlOf(comm).step();
      COLLOPS_RETURN_IF_ERROR(step.Begin(agreement, 20));
      // Runs between the wait's check of `ready` and its check for losses.
      ControlOf(comm).set_drain([&] {
        looks = 1;
        AwaitCount(left, 1);
      });
      EXPECT_EQ(step.Until([&] { return left == 1; }).message(), "");
      return step.End();
    });
    EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
    ControlOf(comm).set_drain({});
  });
}
