// Started calls that fail: refusals, failures, time-outs, interrupts, leaving, fork().
#include "collops/core/process/interrupt.h"
#include "messages/started_kit.h"
#include "run_call.h"

namespace {

using namespace started;

// Waits until another rank has left or ended the group.
void AwaitEnd(Communicator& comm) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(20));
  while (ControlOf(comm).Peek("a look").ok() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

}  // namespace

// The wait's time-out is shorter than the group's, and ends the group (calls and messages).
TEST(AWaitMayHaveAShorterTimeOut) {
  for (const bool message : {false, true}) {
    const ranks::Event over;
    ranks::Run(2, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      if (rank == 1) {
        over.Wait();
        EXPECT_EQ(comm.Barrier().code(), collops::ERROR_TIMEOUT);
        return;
      }
      Buffer out(8);
      const Handle handle = message ? StartRecv(comm, 1, 0, &out) : StartBarrier(comm);
      const Handle next = StartBarrier(comm);
      const auto start = std::chrono::steady_clock::now();
      ExpectError(comm.Wait(handle, 0.2), collops::ERROR_TIMEOUT,
                  {"timed out after 0.2 s", "rank 1 (pid "});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      EXPECT_TRUE(took.count() < check::Patience(10));
      EXPECT_EQ(comm.Wait(next).code(), collops::ERROR_TIMEOUT);
      over.Set();
    });
  }
}

// The call runs in the queue's thread while the waiting thread is interrupted; no part of the call
// runs any more when the wait returns.
TEST(AnInterruptOfAWaitEndsTheGroup) {
  for (const bool message : {false, true}) {
    ranks::Run(2, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      if (rank == 1) return ExpectError(comm.Barrier(), collops::ERROR_ABORTED, {"interrupted"});
      Buffer out(8);
      if (message) {
        const Handle handle = StartRecv(comm, 1, 0, &out);
        collops::InterruptCheckSlot().store([] { return true; });
        return ExpectError(comm.Wait(handle), collops::ERROR_ABORTED, {"rank 0 was interrupted"});
      }
      static std::atomic<bool> left{false};
      Handle handle;
      const auto body = [&comm] {
        // Runs until another rank is missing.
        const Status status = RunCall(ControlOf(comm), "Sum", [&comm]() -> Status {
          while (!comm.failed()) std::this_thread::yield();
          return ControlOf(comm).Failure();
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        left = true;
        return status;
      };
      EXPECT_EQ(comm.Start("Sum", body, &handle).message(), "");
      while (!ControlOf(comm).in_call()) std::this_thread::yield();
      collops::InterruptCheckSlot().store([] { return true; });
      ExpectError(comm.Wait(handle), collops::ERROR_ABORTED, {"Sum: rank 0 was interrupted"});
      EXPECT_TRUE(left.load());
    });
  }
}

// A communicator that is destroyed ends its calls.
TEST(ADestroyedCommunicatorEndsItsStartedCalls) {
  ranks::Run(2, [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    if (rank == 1) {
      messages::Pass(comm, 0, 1, 1);
      AwaitEnd(comm);
      return ExpectError(comm.Barrier(), collops::ERROR_ABORTED, {"rank 0 closed it"});
    }
    static Buffer out(8);
    StartRecv(comm, 1, 0, &out);
    for (int i = 0; i < 3; ++i) StartBarrier(comm);
    messages::Pass(comm, 0, 1, 1);
    while (!ControlOf(comm).in_call()) std::this_thread::yield();
  });
}

// The wait would never end.
TEST(ACallInTheQueueCannotWaitForALaterOne) {
  ranks::RunThreads(1, [](int, Communicator& comm) {
    Handle later;
    std::atomic<bool> known{false};
    const auto wait = [&] {
      while (!known) std::this_thread::yield();
      return comm.Wait(later);
    };
    Handle first;
    EXPECT_EQ(comm.Start("first", wait, &first).message(), "");
    later = StartBarrier(comm);
    known = true;
    ExpectError(comm.Wait(first), collops::ERROR_INVALID_PARAM, {"Barrier: ", "comes after it"});
    EXPECT_EQ(comm.Wait(later).message(), "");
  });
}
