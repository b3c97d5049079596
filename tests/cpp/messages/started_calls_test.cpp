// Started calls: their order, which thread runs them, messages beside them. Each test runs with
// ranks that are processes, and with threads, so that TSan can see all of them.
#include <random>

#include "messages/started_kit.h"
#include "proc.h"

namespace {

using namespace started;

void OnBoth(int rank_size, const std::function<void(int, Communicator&)>& body) {
  ranks::Run(rank_size, body);
  ranks::RunThreads(rank_size, body);
}

// Sends a message from `from` to `to`, between processes or threads.
void Signal(Communicator& comm, int from, int to) {
  messages::Pass(comm, from, to, 1);
}

void AwaitTest(Communicator& comm, const Handle& handle) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(20));
  while (!comm.Test(handle) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(comm.Test(handle));
}

}  // namespace

TEST(StartedCallsRunInTheOrderOfTheirStarts) {
  OnBoth(3, [](int rank, Communicator& comm) {
    std::vector<std::unique_ptr<Gather>> gathers;
    for (int i = 0; i < 30; ++i) gathers.push_back(StartGather(comm, i));
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<size_t> order(gathers.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) EXPECT_EQ(comm.Wait(gathers[i]->handle()).message(), "");
    for (size_t i = 0; i < gathers.size(); ++i) {
      EXPECT_TRUE(gathers[i]->Holds(static_cast<int64_t>(i)));
    }
  });
}

TEST(StartDoesNotWaitForPeers) {
  OnBoth(2, [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    Buffer x(messages::Pattern(1 << 20, 5)), out(1 << 20);
    if (rank == 1) {
      Signal(comm, 0, 1);  // rank 0 has started all its calls, this rank none
    }
    std::vector<Handle> handles;
    for (int i = 0; i < 50; ++i) handles.push_back(StartBarrier(comm));
    handles.push_back(rank == 0 ? StartSend(comm, 1, 9, &x) : StartRecv(comm, 0, 9, &out));
    if (rank == 0) {
      for (const Handle& handle : handles) EXPECT_FALSE(comm.Test(handle));
      Signal(comm, 0, 1);
    }
    for (const Handle& handle : handles) EXPECT_EQ(comm.Wait(handle).message(), "");
    if (rank == 1) EXPECT_TRUE(out.Holds(messages::Pattern(1 << 20, 5)));
  });
}

TEST(OtherCallsComeAfterTheQueue) {
  OnBoth(2, [](int, Communicator& comm) {
    std::vector<std::unique_ptr<Gather>> gathers;
    for (int i = 0; i < 10; ++i) gathers.push_back(StartGather(comm, i));
    Gather last(comm, 10 + 1000 * comm.rank());
    EXPECT_EQ(last.Run().message(), "");
    EXPECT_TRUE(last.Holds(10));
    for (int i = 0; i < 10; ++i) {
      const Gather& gather = *gathers[static_cast<size_t>(i)];
      EXPECT_TRUE(comm.Test(gather.handle()));
      EXPECT_TRUE(gather.Holds(i));
    }
  });
}

// No thread of rank 0 waits: the queue's thread makes the calls and moves the messages.
TEST(StartedCallsRunWhileNoThreadWaits) {
  OnBoth(2, [](int rank, Communicator& comm) {
    constexpr int64_t kBytes = 3 << 20;
    EXPECT_EQ(comm.Barrier().message(), "");
    Buffer x(messages::Pattern(kBytes, 7)), out(kBytes);
    if (rank == 1) {
      EXPECT_EQ(messages::Send(comm, 0, 4, &x).message(), "");
      Gather gather(comm, 1000);
      EXPECT_EQ(gather.Run().message(), "");
      EXPECT_EQ(messages::Recv(comm, 0, 5, &out).message(), "");
      EXPECT_TRUE(out.Holds(messages::Pattern(kBytes, 7)));
      return;
    }
    const Handle receive = StartRecv(comm, 1, 4, &out);
    const auto gather = StartGather(comm, 0);
    const Handle send = StartSend(comm, 1, 5, &x);
    // Not Test(), which would itself move the messages.
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(20));
    while (ControlOf(comm).Peek("a look").ok() && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();  // until rank 1 has finished all calls and leaves
    }
    for (const Handle& handle : {receive, gather->handle(), send}) {
      EXPECT_EQ(comm.Wait(handle).message(), "");
    }
    EXPECT_TRUE(gather->Holds(0));
    EXPECT_TRUE(out.Holds(messages::Pattern(kBytes, 7)));
  });
}

// A rank has started only messages, and waits for none of them.
TEST(MessagesMoveWhileNoThreadWaits) {
  const ranks::Event taken;
  OnBoth(2, [&](int rank, Communicator& comm) {
    constexpr int64_t kBytes = 3 << 20;
    EXPECT_EQ(comm.Barrier().message(), "");
    Buffer x(messages::Pattern(kBytes, 7)), out(kBytes);
    if (rank == 1) {
      EXPECT_EQ(messages::Recv(comm, 0, 4, &out).message(), "");
      EXPECT_TRUE(out.Holds(messages::Pattern(kBytes, 7)));
      taken.Set();
      return;
    }
    const Handle send = StartSend(comm, 1, 4, &x);
    taken.Wait();
    EXPECT_EQ(comm.Wait(send).message(), "");
  });
}

// Two threads wait for one message each, which arrive together; the third message must go on.
TEST(MessagesMoveOnAfterTheirWaitersReturn) {
  const ranks::Event taken;
  OnBoth(2, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    for (int round = 0; round < 20; ++round) {
      Buffer a(messages::Pattern(9, 1)), b(messages::Pattern(9, 2));
      Buffer big(messages::Pattern(1 << 20, 3));
      if (rank == 1) {
        Transfer list[] = {pairs::Send(0, 1, &a), pairs::Send(0, 2, &b)};
        EXPECT_EQ(comm.Messages("exchange", list, 2).message(), "");
        EXPECT_EQ(messages::Send(comm, 0, 3, &big).message(), "");
        taken.Set();
        continue;
      }
      Buffer first(9), second(9), third(1 << 20);
      const Handle handles[] = {StartRecv(comm, 1, 1, &first), StartRecv(comm, 1, 2, &second),
                                StartRecv(comm, 1, 3, &third)};
      std::thread other([&] { EXPECT_EQ(comm.Wait(handles[1]).message(), ""); });
      EXPECT_EQ(comm.Wait(handles[0]).message(), "");
      other.join();
      taken.Wait();  // this rank is in no call
      EXPECT_EQ(comm.Wait(handles[2]).message(), "");
      EXPECT_TRUE(third.Holds(messages::Pattern(1 << 20, 3)));
    }
  });
}

// A barrier that cannot end delays neither started messages nor those of other calls.
TEST(MessagesDoNotWaitForTheQueue) {
  OnBoth(2, [](int rank, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    constexpr int64_t kBytes = 1 << 20;
    Buffer x(messages::Pattern(kBytes, 3)), out(kBytes), small(messages::Pattern(9, 4)), back(9);
    if (rank == 0) {
      const Handle barrier = StartBarrier(comm);
      const Handle send = StartSend(comm, 1, 2, &x);
      EXPECT_EQ(messages::Recv(comm, 1, 3, &back).message(), "");
      EXPECT_FALSE(comm.Test(barrier));
      EXPECT_EQ(comm.Wait(send).message(), "");
      Signal(comm, 0, 1);
      EXPECT_EQ(comm.Wait(barrier).message(), "");
      EXPECT_TRUE(back.Holds(messages::Pattern(9, 4)));
    } else {
      EXPECT_EQ(messages::Recv(comm, 0, 2, &out).message(), "");
      EXPECT_EQ(messages::Send(comm, 0, 3, &small).message(), "");
      EXPECT_TRUE(out.Holds(messages::Pattern(kBytes, 3)));
      Signal(comm, 0, 1);
      EXPECT_EQ(comm.Barrier().message(), "");
    }
  });
}

// Both ranks send first, then receive, with a group call in between.
TEST(SendsBeforeReceivesDoNotLockUp) {
  OnBoth(2, [](int rank, Communicator& comm) {
    for (const int64_t bytes : {10, 5000, 300000, 2 << 20}) {
      const auto mine = static_cast<uint32_t>(rank), theirs = static_cast<uint32_t>(1 - rank);
      Buffer x(messages::Pattern(bytes, mine)), out(bytes);
      const Handle send = StartSend(comm, 1 - rank, 1, &x);
      EXPECT_EQ(comm.Barrier().message(), "");
      const Handle receive = StartRecv(comm, 1 - rank, 1, &out);
      EXPECT_EQ(comm.Wait(send).message(), "");
      EXPECT_EQ(comm.Wait(receive).message(), "");
      EXPECT_TRUE(out.Holds(messages::Pattern(bytes, theirs)));
    }
  });
}

TEST(TwoThreadsMayWaitForOneCallAndForTwo) {
  OnBoth(2, [](int, Communicator& comm) {
    const auto first = StartGather(comm, 1);
    const auto second = StartGather(comm, 2);
    std::thread other([&] {
      EXPECT_EQ(comm.Wait(second->handle()).message(), "");
      EXPECT_EQ(comm.Wait(first->handle()).message(), "");
    });
    EXPECT_EQ(comm.Wait(first->handle()).message(), "");
    EXPECT_EQ(comm.Wait(second->handle()).message(), "");
    other.join();
    EXPECT_EQ(comm.Wait(second->handle()).message(), "");  // a second time
    EXPECT_TRUE(first->Holds(1) && second->Holds(2));
  });
}

TEST(TheSourceOfAMessageIsKnownAtItsEnd) {
  OnBoth(3, [](int rank, Communicator& comm) {
    Buffer x(messages::Pattern(8, static_cast<uint32_t>(rank))), a(8), b(8);
    if (rank > 0) {
      EXPECT_EQ(messages::Send(comm, 0, 6, &x).message(), "");
      return;
    }
    Transfer list[] = {pairs::Recv(collops::kAnySource, 6, &a),
                       pairs::Recv(collops::kAnySource, 6, &b)};
    Handle handle;
    EXPECT_EQ(comm.StartMessages("exchange", list, 2, &handle).message(), "");
    std::vector<int> sources;
    EXPECT_EQ(comm.Wait(handle, 0, &sources).message(), "");
    ASSERT_TRUE(sources.size() == 2 && sources[0] + sources[1] == 3);
    EXPECT_TRUE(a.Holds(messages::Pattern(8, static_cast<uint32_t>(sources[0]))));
    EXPECT_TRUE(b.Holds(messages::Pattern(8, static_cast<uint32_t>(sources[1]))));
  });
}

// A communicator with started calls has one thread, and none after Close().
TEST(TheQueuesThreadExistsFromTheFirstStartToClose) {
  ranks::Run(2, [](int, Communicator& comm) {
    EXPECT_EQ(comm.Barrier().message(), "");
    const int before = proc::NumThreads();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(comm.Wait(StartBarrier(comm)).message(), "");
    EXPECT_EQ(proc::NumThreads(), before + 1);
    comm.Close("its work is done");
    EXPECT_EQ(proc::AwaitThreads(before), before);
  });
}

// Messages and group calls, started or not, waited for in any order.
TEST(ManyCallsOfAllWays) {
  OnBoth(3, [](int rank, Communicator& comm) {
    std::mt19937 common(11);  // the same on all ranks
    std::mt19937 own(static_cast<unsigned>(rank));
    for (int round = 0; round < 40; ++round) {
      std::vector<std::unique_ptr<Gather>> gathers;
      std::vector<std::unique_ptr<Buffer>> buffers;
      std::vector<Handle> handles;
      std::vector<std::pair<Buffer*, uint32_t>> wanted;
      for (int i = 0; i < 6; ++i) {
        const unsigned choice = common() % 5;
        const auto bytes = static_cast<int64_t>(common() % 3 == 0 ? 300000 : common() % 6000);
        if (choice == 0) {
          gathers.push_back(StartGather(comm, i));
          handles.push_back(gathers.back()->handle());
        } else if (choice == 1) {
          gathers.push_back(std::make_unique<Gather>(comm, i + 1000 * rank));
          EXPECT_EQ(gathers.back()->Run().message(), "");
          EXPECT_TRUE(gathers.back()->Holds(i));
        } else {
          const uint32_t seed = common();
          buffers.push_back(std::make_unique<Buffer>(
              messages::Pattern(bytes, seed + static_cast<uint32_t>(rank))));
          handles.push_back(StartSend(comm, (rank + 1) % 3, i, buffers.back().get()));
          buffers.push_back(std::make_unique<Buffer>(bytes));
          handles.push_back(StartRecv(comm, (rank + 2) % 3, i, buffers.back().get()));
          wanted.emplace_back(buffers.back().get(), seed + static_cast<uint32_t>((rank + 2) % 3));
        }
      }
      std::shuffle(handles.begin(), handles.end(), own);
      for (const Handle& handle : handles) {
        if (own() % 3 == 0) AwaitTest(comm, handle);
        EXPECT_EQ(comm.Wait(handle).message(), "");
      }
      for (const auto& [buffer, seed] : wanted) {
        EXPECT_TRUE(buffer->Holds(messages::Pattern(buffer->bytes(), seed)));
      }
    }
  });
}
