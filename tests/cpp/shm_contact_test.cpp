// First contact when ranks leave, die, abort, or meet anew.
#include "ranks.h"

namespace {

using collops::Communicator;
using collops::Status;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void WaitAll(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

// Rank 1 says hello when it is made, ends by `leave`, and stays alive; rank 0 must not wait for it.
void LeaveAfterHello(collops::ErrorCode code, const std::function<void(Communicator&)>& leave) {
  const collops::JobIdentity job = ranks::FreshJob();
  WaitAll({ranks::Start([&] {
             const auto communicator = ranks::Make(job, 0, 2);
             usleep(200000);
             EXPECT_TRUE(communicator->Connect().ok());  // all have said hello
             usleep(400000);
             const Status status = communicator->Barrier();
             EXPECT_EQ(status.code(), code);
             EXPECT_CONTAINS(status.message(), "no such token");
           }),
           ranks::Start([&] {
             usleep(100000);
             const auto communicator = ranks::Make(job, 1, 2);
             usleep(300000);
             leave(*communicator);
             usleep(800000);
           })});
}

}  // namespace

TEST(ARankThatLeavesBeforeItsFirstCallSaysWhy) {
  LeaveAfterHello(collops::ERROR_PEER_LOST, [](Communicator& c) { c.Close("no such token"); });
  LeaveAfterHello(collops::ERROR_ABORTED, [](Communicator& c) { c.Abort("no such token"); });
}

TEST(AbortAndCloseFromAnotherThreadEndFirstContact) {
  for (const int rank : {0, 1}) {
    for (const bool abort : {true, false}) {
      const auto communicator = ranks::Make(ranks::FreshJob(), rank, 2);
      std::thread other([&] {
        usleep(100000);
        abort ? communicator->Abort("enough") : communicator->Close("enough");
      });
      const Clock::time_point start = Clock::now();
      const Status status = communicator->Connect();
      other.join();
      EXPECT_EQ(status.code(), collops::ERROR_ABORTED);
      EXPECT_CONTAINS(status.message(), "enough");
      EXPECT_TRUE(SecondsSince(start) < 1.0);
    }
  }
}

TEST(TheEndOfRank0InFirstContactIsReported) {
  for (int round = 0; round < 10; ++round) {
    const collops::JobIdentity job = ranks::FreshJob();
    const pid_t leader = ranks::Start([&] { (void)ranks::Make(job, 0, 3)->Connect(); });
    const pid_t member = ranks::Start([&] {
      const auto communicator = ranks::Make(job, 1, 3);
      const Status status = communicator->Connect();
      EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
      EXPECT_CONTAINS(status.message(), "rank 0 (pid " + std::to_string(leader));
    });
    usleep(120000);
    kill(leader, SIGKILL);
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(ranks::Wait(member).code, 0);
    EXPECT_TRUE(SecondsSince(start) < 1.0);
    EXPECT_FALSE(ranks::Wait(leader).exited);
  }
}

TEST(RanksMeetAnewRightAfterAFailedFirstContact) {
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      // One rank is wrong about their number first.
      const Status wrong = ranks::Make(job, rank, rank == 2 ? 5 : 3, 5)->Connect();
      EXPECT_EQ(wrong.code(), collops::ERROR_RANK_MISMATCH);
      EXPECT_EQ(ranks::Make(job, rank, 3, 5)->Connect().message(), "");
    }));
  }
  WaitAll(pids);
}

TEST(AForkedChildKeepsNothingOfFirstContactOpen) {
  const collops::JobIdentity job = ranks::FreshJob();
  WaitAll({ranks::Start([&] {
             auto communicator = ranks::Make(job, 0, 2);
             const pid_t child = ranks::Start([] { usleep(1500000); });
             communicator.reset();
             // The child would still listen here, and nobody would answer.
             communicator = ranks::Make(job, 0, 2, 1.0);
             EXPECT_EQ(communicator->Connect().message(), "");
             EXPECT_EQ(ranks::Wait(child).code, 0);
           }),
           ranks::Start([&] {
             usleep(200000);
             EXPECT_EQ(ranks::Make(job, 1, 2, 1.0)->Connect().message(), "");
           })});
}
