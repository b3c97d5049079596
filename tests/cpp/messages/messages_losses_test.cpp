// Messages that end early: a lost rank, time-outs, the end of the group, and their error texts.
#include "messages/messages_kit.h"

using namespace messages;  // NOLINT: the kit of these tests

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Ranks that have met; rank `brief` has a short time-out.
void RunBriefly(int rank_size, int brief, const std::function<void(int, Communicator&)>& body) {
  ranks::Run(rank_size, [&](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    if (rank == brief) communicator.set_timeout_s(0.5);
    body(rank, communicator);
  });
}

void AwaitTrue(const std::function<bool()>& holds) {
  const Clock::time_point start = Clock::now();
  while (!holds() && SecondsSince(start) < check::Patience(20)) usleep(1000);
  EXPECT_TRUE(holds());
}

// Waits until a rank sleeps in the wait for a message.
void AwaitMessageCall(int rank, Communicator& communicator) {
  AwaitTrue([&] {
    return !ControlOf(communicator).endpoint().board().member(rank).pair_call.Read().empty();
  });
}

std::string Name(int rank) {
  return "rank " + std::to_string(rank) + " (pid ";
}

}  // namespace

TEST(AKilledThirdRankDisturbsNoPair) {
  const ranks::Event killed;
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event met;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      const auto communicator = ranks::Make(job, rank, 3, check::Patience(20));
      EXPECT_EQ(communicator->Barrier().message(), "");
      met.Set();
      if (rank == 2) pause();
      if (rank == 0) killed.Wait();  // rank 1 is waiting in its call
      for (uint32_t i = 0; i < 100; ++i)
        Pass(*communicator, i % 2 == 0 ? 0 : 1, i % 2 == 0 ? 1 : 0, i);
      ExpectError(communicator->Barrier(), collops::ERROR_PEER_LOST, {Name(2)});
    }));
  }
  met.Wait(3);
  kill(pids[2], SIGKILL);
  EXPECT_FALSE(ranks::Wait(pids[2]).exited);
  killed.Set();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(ranks::Wait(pids[static_cast<size_t>(rank)]).code, 0);
}

TEST(ATimeoutNamesBothRanksCalls) {
  // The peer is in no call.
  const ranks::Event over;
  RunBriefly(2, 0, [&](int rank, Communicator& communicator) {
    Buffer out(8);
    if (rank == 1) return over.Wait();
    ExpectError(Recv(communicator, 1, 3, &out, nullptr, DType::kFloat32), collops::ERROR_TIMEOUT,
                {"Recv: timed out after 0.5 s: Recv of 2 float32 from " + Name(1),
                 "(tag 3): no such message has arrived", ", is in no call"});
    over.Set();
  });
  // Both ranks send first.
  RunBriefly(2, 0, [](int rank, Communicator& communicator) {
    Buffer x(8);
    if (rank == 0) AwaitMessageCall(1, communicator);
    ExpectError(Send(communicator, 1 - rank, 3, &x), collops::ERROR_TIMEOUT,
                {"Send of 8 uint8 to rank ", "its receiver has not received it",
                 "two ranks that both send first wait for each other, exchange does not"});
  });
  // The ranks use different tags.
  for (const int brief : {0, 1}) {
    RunBriefly(2, brief, [brief](int rank, Communicator& communicator) {
      Buffer x(8);
      if (rank == brief) AwaitMessageCall(1 - rank, communicator);
      const Status status = rank == 0 ? Send(communicator, 1, 3, &x) : Recv(communicator, 0, 4, &x);
      ExpectError(status, collops::ERROR_TIMEOUT,
                  {"(tag 3)", "(tag 4)",
                   brief == 0 ? "is in Recv from rank 0 (tag 4)" : "is in Send to rank 1 (tag 3)"});
    });
  }
}

TEST(ATimeoutNamesAGroupCallOfThePeer) {
  // The message's time-out ends first.
  RunBriefly(2, 0, [](int rank, Communicator& communicator) {
    Buffer x(8);
    const uint64_t next = ControlOf(communicator).step_number() + 1;
    if (rank == 0) AwaitTrue([&] { return ControlOf(communicator).endpoint().HasBegun(1, next); });
    const Status status = rank == 0 ? Send(communicator, 1, 3, &x) : communicator.Barrier();
    ExpectError(status, collops::ERROR_TIMEOUT,
                {"Send of 8 uint8 to " + Name(1), Name(1), "is in call 2 (barrier)"});
  });
  // The group's time-out ends first.
  RunBriefly(2, 1, [](int rank, Communicator& communicator) {
    Buffer x(8);
    if (rank == 1) AwaitMessageCall(0, communicator);
    const Status status = rank == 0 ? Send(communicator, 1, 3, &x) : communicator.Barrier();
    ExpectError(status, collops::ERROR_TIMEOUT,
                {"barrier: call 2 timed out", Name(0),
                 "has not entered it: it is in Send to rank 1 (tag 3)"});
  });
}

TEST(AbortAndCloseOfAnotherThreadEndAMessage) {
  for (const bool abort : {true, false}) {
    ranks::Run(2, [&](int rank, Communicator& communicator) {
      EXPECT_EQ(communicator.Barrier().message(), "");
      Buffer out(8);
      std::thread other;
      if (rank == 0) {
        other = std::thread([&] {
          for (const int r : {0, 1}) AwaitMessageCall(r, communicator);
          abort ? communicator.Abort("enough") : communicator.Close("enough");
        });
      }
      const Status status =
          rank == 0 ? Recv(communicator, 1, 0, &out) : Recv(communicator, 0, 0, &out);
      ExpectError(status, collops::ERROR_ABORTED, {"enough"});
      if (rank == 0) other.join();
    });
  }
}
