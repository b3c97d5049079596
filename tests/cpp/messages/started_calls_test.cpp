// Started calls: their order, which thread runs them, messages beside them. Each test runs with
// ranks that are processes, and with threads, so that TSan can see all of them.
#include <random>

#include "messages/started_kit.h"

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
