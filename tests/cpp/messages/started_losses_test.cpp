// Started calls that fail: refusals, failures, time-outs, interrupts, leaving, fork().
#include "collops/core/process/interrupt.h"
#include "messages/started_kit.h"
#include "run_call.h"

namespace {

using namespace started;

void ExpectAll(Communicator& comm, const std::vector<Handle>& handles, collops::ErrorCode code,
               const std::string& part) {
  std::string first;
  for (const Handle& handle : handles) {
    const Status status = comm.Wait(handle);
    ExpectError(status, code, {part});
    if (first.empty()) first = status.message();
    EXPECT_EQ(status.message(), first);
  }
}

// Waits until another rank has left or ended the group.
void AwaitEnd(Communicator& comm) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(20));
  while (ControlOf(comm).Peek("a look").ok() && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
}

void RefuseOnce(Communicator& comm, Handle* handle) {
  const auto body = [&comm] {
    return comm.Refuse("AllGatherV", Error(collops::ERROR_INVALID_PARAM, "x is wrong"));
  };
  EXPECT_EQ(comm.Start("AllGatherV", body, handle).message(), "");
}

}  // namespace

// The other ranks get the refusal in the refused call; the calls before and after it succeed.
TEST(ARefusalTakesItsPlaceInTheQueue) {
  for (const bool from_thread : {false, true}) {
    const auto body = [](int rank, Communicator& comm) {
      const auto before = StartGather(comm, 1);
      Gather refused(comm, 2 + 1000 * rank);
      Handle refusal;
      if (rank == 0) RefuseOnce(comm, &refusal);
      if (rank != 0) EXPECT_EQ(refused.Start().message(), "");
      const auto after = StartGather(comm, 3);
      EXPECT_EQ(comm.Wait(after->handle()).message(), "");
      EXPECT_EQ(comm.Wait(before->handle()).message(), "");
      EXPECT_TRUE(before->Holds(1) && after->Holds(3));
      if (rank == 0) {
        EXPECT_EQ(comm.Wait(refusal).message(), "");
      } else {
        ExpectError(comm.Wait(refused.handle()), collops::ERROR_RANK_MISMATCH,
                    {"rank 0 (pid ", "refused call 2", "x is wrong"});
      }
    };
    from_thread ? ranks::RunThreads(3, body) : ranks::Run(3, body);
  }
}

TEST(AFailureEndsAllThatAreQueued) {
  for (const bool from_thread : {false, true}) {
    const auto body = [](int rank, Communicator& comm) -> void {
      EXPECT_EQ(comm.Barrier().message(), "");
      if (rank == 1) {
        messages::Pass(comm, 0, 1, 1);
        return comm.Abort("it has seen enough");
      }
      std::vector<Handle> handles;
      for (int i = 0; i < 5; ++i) handles.push_back(StartBarrier(comm));
      messages::Pass(comm, 0, 1, 1);
      ExpectAll(comm, handles, collops::ERROR_ABORTED, "rank 1 aborted: it has seen enough");
      Handle late;
      const auto barrier = [&comm] { return comm.Barrier(); };
      ExpectError(comm.Start("Barrier", barrier, &late), collops::ERROR_ABORTED,
                  {"this communicator has ended"});
      ExpectError(comm.Barrier(), collops::ERROR_ABORTED, {"this communicator has ended"});
    };
    from_thread ? ranks::RunThreads(2, body) : ranks::Run(2, body);
  }
}

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

TEST(CloseEndsStartedCalls) {
  for (const bool from_thread : {false, true}) {
    const auto body = [](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      if (rank == 1) {
        messages::Pass(comm, 0, 1, 1);
        AwaitEnd(comm);
        EXPECT_FALSE(comm.Barrier().ok());
        return;
      }
      Buffer out(8);
      std::vector<Handle> handles = {StartRecv(comm, 1, 0, &out), StartBarrier(comm),
                                     StartBarrier(comm)};
      messages::Pass(comm, 0, 1, 1);
      comm.Close("its work is done");
      for (const Handle& handle : handles) EXPECT_TRUE(comm.Test(handle));
      ExpectAll(comm, handles, collops::ERROR_ABORTED, "rank 0 closed it: its work is done");
    };
    from_thread ? ranks::RunThreads(2, body) : ranks::Run(2, body);
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

TEST(TheLossOfAPeerEndsStartedCalls) {
  const ranks::Event met;
  ranks::Run(2, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    if (rank == 1) {
      met.Wait();
      _exit(0);
    }
    Buffer out(8);
    const Handle receive = StartRecv(comm, 1, 0, &out);
    const Handle barrier = StartBarrier(comm);
    met.Set();
    ExpectError(comm.Wait(receive), collops::ERROR_PEER_LOST, {"rank 1 (pid "});
    ExpectError(comm.Wait(barrier), collops::ERROR_PEER_LOST, {"rank 1 (pid "});
  });
}

TEST(AStartInsideAnotherThreadsCallIsAnError) {
  for (const bool started : {false, true}) {
    const ranks::Event told;
    ranks::Run(2, [&](int rank, Communicator& comm) {
      EXPECT_EQ(comm.Barrier().message(), "");
      if (started) EXPECT_EQ(comm.Wait(StartBarrier(comm)).message(), "");
      if (rank == 1) {
        told.Wait();
        EXPECT_EQ(comm.Barrier().message(), "");
        return;
      }
      std::thread first([&] { EXPECT_EQ(comm.Barrier().message(), ""); });
      while (!ControlOf(comm).in_call()) std::this_thread::yield();
      Handle handle;
      const auto barrier = [&comm] { return comm.Barrier(); };
      ExpectError(comm.Start("Barrier", barrier, &handle), collops::ERROR_INVALID_PARAM,
                  {"Barrier: another thread is in a call", "one thread at a time"});
      told.Set();
      first.join();
      EXPECT_FALSE(comm.failed());
    });
  }
}

TEST(AnInvalidEngineHandleIsAnError) {
  ranks::Run(1, [](int, Communicator& comm) {
    EXPECT_EQ(comm.Wait(StartBarrier(comm)).message(), "");
    ExpectError(comm.Wait(nullptr), collops::ERROR_INVALID_PARAM, {"no such call"});
    EXPECT_FALSE(comm.Test(nullptr));
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

// In a child of fork() the thread does not exist, and its locks may be held for ever.
TEST(AForkedChildHasNoStartedCalls) {
  ranks::Run(2, [](int rank, Communicator& comm) {
    const Handle first = StartBarrier(comm);
    EXPECT_EQ(comm.Wait(first).message(), "");
    if (rank == 0) {
      const Handle running = StartBarrier(comm);
      for (int i = 0; i < 30; ++i) {
        const pid_t child = ranks::Start([&] {
          ExpectError(comm.Wait(running), collops::ERROR_INVALID_PARAM, {"parent process"});
          EXPECT_FALSE(comm.Test(running));
          Handle handle;
          const auto barrier = [&comm] { return comm.Barrier(); };
          ExpectError(comm.Start("Barrier", barrier, &handle), collops::ERROR_INVALID_PARAM,
                      {"parent process"});
          ExpectError(comm.Barrier(), collops::ERROR_INVALID_PARAM, {"parent process"});
          comm.Close("the child has ended");
          comm.~Communicator();  // the destructor waits for no rank
        });
        EXPECT_EQ(ranks::Wait(child).code, 0);
      }
      messages::Pass(comm, 0, 1, 1);
      EXPECT_EQ(comm.Wait(running).message(), "");
      return;
    }
    messages::Pass(comm, 0, 1, 1);
    EXPECT_EQ(comm.Barrier().message(), "");
  });
}
