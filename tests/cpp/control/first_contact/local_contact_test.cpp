// First contact when ranks leave, die, abort, or meet again.
#include "collops/core/process/interrupt.h"
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

// Rank 1 sends its hello when it is created, ends by `leave`, and its process lives on; rank 0 must
// not wait for it.
void LeaveAfterHello(collops::ErrorCode code, const std::function<void(Communicator&)>& leave) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, came, met, left, checked;
  WaitAll({ranks::Start([&] {
             const auto communicator = ranks::Make(job, 0, 2);
             listens.Set();
             came.Wait();
             EXPECT_TRUE(communicator->Connect().ok());  // all hellos have been sent
             met.Set();
             left.Wait();
             const Status status = communicator->Barrier();
             EXPECT_EQ(status.code(), code);
             EXPECT_CONTAINS(status.message(), "no such token");
             checked.Set();
           }),
           ranks::Start([&] {
             listens.Wait();
             const auto communicator = ranks::Make(job, 1, 2);
             came.Set();
             met.Wait();
             leave(*communicator);
             left.Set();
             checked.Wait();
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
      EXPECT_TRUE(SecondsSince(start) < check::Patience(10.0));
    }
  }
}

TEST(TheEndOfRank0InFirstContactIsReported) {
  for (int round = 0; round < 10; ++round) {
    const collops::JobIdentity job = ranks::FreshJob();
    const ranks::Event listens, came;
    const pid_t leader = ranks::Start([&] {
      const auto communicator = ranks::Make(job, 0, 3);
      listens.Set();
      (void)communicator->Connect();
    });
    const pid_t member = ranks::Start([&] {
      listens.Wait();
      const auto communicator = ranks::Make(job, 1, 3);
      came.Set();
      const Status status = communicator->Connect();
      EXPECT_EQ(status.code(), collops::ERROR_PEER_LOST);
      EXPECT_CONTAINS(status.message(), "rank 0 (pid " + std::to_string(leader));
    });
    came.Wait();
    usleep(static_cast<useconds_t>(round) * 10000);  // at another time in each round
    kill(leader, SIGKILL);
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(ranks::Wait(member).code, 0);
    EXPECT_TRUE(SecondsSince(start) < check::Patience(10.0));
    EXPECT_FALSE(ranks::Wait(leader).exited);
  }
}

// A process claims rank 1 although it is rank 2; it gets a verdict, and comes again.
TEST(AProcessThatCorrectsItsRankMeetsTheOthers) {
  for (const int claimed : {0, 1}) {
    const collops::JobIdentity job = ranks::FreshJob();
    const ranks::Event listens, came;
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(ranks::Start([&, rank] {
        if (rank > 0) listens.Wait();
        auto first = ranks::Make(job, rank == 2 ? claimed : rank, 3, check::Patience(5));
        if (rank > 0) {
          came.Set();
        } else {
          listens.Set(2);
          came.Wait(2);
        }
        const Status status = first->Connect();
        EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
        EXPECT_CONTAINS(status.message(), "is claimed twice");
        first.reset();
        EXPECT_EQ(ranks::Make(job, rank, 3, check::Patience(5))->Connect().message(), "");
      }));
    }
    WaitAll(pids);
  }
}

TEST(AForkedChildClosesTheSocketsOfFirstContact) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, met;
  WaitAll({ranks::Start([&] {
             auto communicator = ranks::Make(job, 0, 2);
             const pid_t child = ranks::Start([&] { met.Wait(); });
             communicator.reset();
             // Otherwise the child would still own the socket, and nobody would answer.
             communicator = ranks::Make(job, 0, 2, check::Patience(5));
             listens.Set();
             EXPECT_EQ(communicator->Connect().message(), "");
             met.Set();
             EXPECT_EQ(ranks::Wait(child).code, 0);
           }),
           ranks::Start([&] {
             listens.Wait();
             EXPECT_EQ(ranks::Make(job, 1, 2, check::Patience(5))->Connect().message(), "");
           })});
}

// Whoever is interrupted before all ranks have come: those that wait for it hear at once, also if
// its first attempt to reach rank 0 was too early.
TEST(AnInterruptInFirstContactIsHeardByThoseThatWait) {
  for (const int interrupted : {0, 1}) {
    const collops::JobIdentity job = ranks::FreshJob();
    const ranks::Event made, waits, heard;
    std::vector<pid_t> pids;
    // Rank 3 never comes.
    for (const int rank : {1, 0, 2}) {
      pids.push_back(ranks::Start([&, rank] {
        const auto communicator = ranks::Make(job, rank, 4);
        made.Set();
        if (rank == interrupted) {
          waits.Wait(2);
          usleep(200000);
          collops::InterruptCheckSlot().store([] { return true; });
        }
        waits.Set();
        const auto start = std::chrono::steady_clock::now();
        const Status met = communicator->Connect();
        EXPECT_CONTAINS(met.message(), "interrupted");
        EXPECT_TRUE(SecondsSince(start) < check::Patience(3));
        heard.Set();
        if (rank == interrupted) heard.Wait(3);  // the end of its process would be seen, too
      }));
      made.Wait();
    }
    for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
  }
}
