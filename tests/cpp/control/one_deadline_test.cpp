// All waits of one call have one deadline.
#include <vector>

#include "ranks.h"

namespace {

using collops::Agreement;
using collops::Communicator;
using collops::Status;
using collops::control::kShareBytes;
using Clock = std::chrono::steady_clock;

constexpr double kTimeoutS = 4.0;
constexpr useconds_t kLate = 2800000;  // less than the time-out, more than half of it

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void ExpectTimedOut(const Status& status, Clock::time_point start) {
  EXPECT_EQ(status.code(), collops::ERROR_TIMEOUT);
  EXPECT_CONTAINS(status.message(), "after 4 s: rank 1 (pid ");
  EXPECT_TRUE(SecondsSince(start) >= kTimeoutS);
}

Status Share(Communicator& communicator, int64_t bytes) {
  const std::vector<char> mine(static_cast<size_t>(bytes));
  std::vector<char> all(2 * static_cast<size_t>(bytes));
  return communicator.Share(Agreement("Toy"), mine.data(), bytes, all.data());
}

}  // namespace

// Rank 1 is late at each of the call's two steps.
TEST(ACallOfSeveralStepsHasOneDeadline) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    if (rank == 0) {
      communicator.set_timeout_s(kTimeoutS);
      const Clock::time_point start = Clock::now();
      return ExpectTimedOut(Share(communicator, 2 * kShareBytes), start);
    }
    usleep(kLate);
    EXPECT_EQ(Share(communicator, kShareBytes).message(), "");
    usleep(kLate);
    EXPECT_EQ(Share(communicator, kShareBytes).code(), collops::ERROR_TIMEOUT);
  });
}

// Rank 1 is late at the refused call, for which rank 0 waits in the next call, and at that one.
TEST(TheCallAfterARefusalHasOneDeadline) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    EXPECT_EQ(communicator.Barrier().message(), "");
    if (rank == 0) {
      communicator.set_timeout_s(kTimeoutS);
      const Status bad(collops::ERROR_INVALID_PARAM, "no such thing");
      EXPECT_EQ(communicator.Refuse("Barrier", bad).message(), "");
      const Clock::time_point start = Clock::now();
      return ExpectTimedOut(communicator.Barrier(), start);
    }
    usleep(kLate);
    EXPECT_EQ(communicator.Barrier().code(), collops::ERROR_RANK_MISMATCH);
    usleep(kLate);
    EXPECT_EQ(communicator.Barrier().code(), collops::ERROR_TIMEOUT);
  });
}

// Rank 1 is late at first contact, and then at the call.
TEST(FirstContactCountsForItsCall) {
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(ranks::Start([&job, rank] {
      if (rank == 1) usleep(kLate);
      const auto communicator =
          ranks::Make(job, rank, 2, rank == 0 ? kTimeoutS : check::Patience(20));
      if (rank == 0) {
        const Clock::time_point start = Clock::now();
        return ExpectTimedOut(communicator->Barrier(), start);
      }
      EXPECT_EQ(communicator->Connect().message(), "");
      usleep(kLate);
      EXPECT_EQ(communicator->Barrier().code(), collops::ERROR_TIMEOUT);
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}
