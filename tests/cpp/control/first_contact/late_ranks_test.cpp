// First contact that one rank has given up: a rank that comes later gets the reason.
#include <sys/resource.h>

#include <fstream>

#include "ranks.h"

namespace {

using collops::Status;
using Clock = std::chrono::steady_clock;

// Limits open files to `more` than now, fewer than first contact needs.
void OpenNoMoreThan(rlim_t more) {
  // UBSan opens a pipe when it first meets a class, and reports a failure to do so as an error of
  // the program: so these streams are used before the limit is set.
  std::ifstream("/proc/self/stat").get();
  EXPECT_EQ(collops::Concat(1), "1");
  const int first_free = dup(0);
  close(first_free);
  const rlimit limit{static_cast<rlim_t>(first_free) + more, 20000};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void ExpectToldSoon(const Status& status, const std::string& reason, Clock::time_point start) {
  EXPECT_FALSE(status.ok());
  EXPECT_CONTAINS(status.message(), reason);
  EXPECT_TRUE(std::chrono::duration<double>(Clock::now() - start).count() < check::Patience(5.0));
}

}  // namespace

TEST(ALateRankGetsTheErrorOfRank0WithoutDescriptors) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens;
  std::vector<pid_t> pids;
  pids.push_back(ranks::Start([&] {
    const auto communicator = ranks::Make(job, 0, 3, check::Patience(20));
    OpenNoMoreThan(0);
    listens.Set(2);
    const Status status = communicator->Connect();
    EXPECT_EQ(status.code(), collops::ERROR_RT_FAIL);
    EXPECT_CONTAINS(status.message(), "open files");
  }));
  for (const int rank : {1, 2}) {
    pids.push_back(ranks::Start([&, rank] {
      listens.Wait();
      const Clock::time_point start = Clock::now();
      const auto communicator = ranks::Make(job, rank, 3, check::Patience(20));
      ExpectToldSoon(communicator->Connect(), "open files", start);
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

// Rank 1 sends its hello, and leaves before rank 2 has come.
void LeaveBeforeTheLastComes(const std::function<void(collops::Communicator&)>& leave,
                             const std::string& reason) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, came, told;
  std::vector<pid_t> pids;
  pids.push_back(ranks::Start([&] {
    const auto communicator = ranks::Make(job, 0, 3, check::Patience(20));
    listens.Set();
    came.Wait();
    const Clock::time_point start = Clock::now();
    told.Set();
    ExpectToldSoon(communicator->Connect(), reason, start);
  }));
  pids.push_back(ranks::Start([&] {
    listens.Wait();
    const auto communicator = ranks::Make(job, 1, 3, 0.1);
    leave(*communicator);
    came.Set();
  }));
  pids.push_back(ranks::Start([&] {
    told.Wait();
    const Clock::time_point start = Clock::now();
    const auto communicator = ranks::Make(job, 2, 3, check::Patience(20));
    ExpectToldSoon(communicator->Connect(), reason, start);
  }));
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(ALateRankGetsTheReasonWhyAnotherRankLeft) {
  LeaveBeforeTheLastComes([](auto& c) { c.Close("no such token"); }, "no such token");
  LeaveBeforeTheLastComes([](auto& c) { c.Abort("no such token"); }, "no such token");
  LeaveBeforeTheLastComes([](auto& c) { EXPECT_FALSE(c.Connect().ok()); }, " within 0.1 s");
}

// Rank 1 cannot take the descriptors that rank 0 sends (mailboxes, the segment). It lives until the
// others have got the reason.
void FailAfterTheIntroduction(int rank_size, rlim_t more) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, came, failed, reported;
  const size_t others = static_cast<size_t>(rank_size) - 1;
  const auto take_part = [&](collops::Communicator& communicator) {
    const Clock::time_point start = Clock::now();
    Status status = communicator.Connect();
    if (status.ok()) status = communicator.Barrier();
    ExpectToldSoon(status, "open files", start);
    reported.Set();
  };
  const auto fail = [&](collops::Communicator& communicator) {
    OpenNoMoreThan(more);
    const Status status = communicator.Connect();
    EXPECT_EQ(status.code(), collops::ERROR_RT_FAIL);
    EXPECT_CONTAINS(status.message(), "open files");
    failed.Set();
    reported.Wait(others);
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < rank_size; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      if (rank > 0) listens.Wait();
      const auto communicator = ranks::Make(job, rank, rank_size, check::Patience(20));
      if (rank == 0) {
        listens.Set(others);
        came.Wait(others);
      } else {
        came.Set();
      }
      if (rank == 2) failed.Wait();  // late
      rank == 1 ? fail(*communicator) : take_part(*communicator);
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(AllRanksGetTheErrorOfARankThatCouldNotBeIntroduced) {
  for (const int rank_size : {2, 3, 4}) {
    for (const rlim_t more : {0, 1, 3}) FailAfterTheIntroduction(rank_size, more);
  }
}
