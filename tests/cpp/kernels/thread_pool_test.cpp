#include "collops/kernels/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/core/process/cgroups.h"

namespace {

using collops::kernels::ForceNumThreads;
using collops::kernels::NumThreads;
using collops::kernels::ParallelFor;
using collops::kernels::SetDefaultShare;

#if defined(__SANITIZE_THREAD__)
constexpr bool kUnderTsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kUnderTsan = true;
#else
constexpr bool kUnderTsan = false;
#endif
#else
constexpr bool kUnderTsan = false;
#endif

// How often each part ran.
std::vector<int> Count(int num_parts) {
  std::vector<int> counts(static_cast<size_t>(num_parts));
  ParallelFor(num_parts, [&](int part) { ++counts[static_cast<size_t>(part)]; });
  return counts;
}

std::vector<int> Ones(int num_parts) {
  return std::vector<int>(static_cast<size_t>(num_parts), 1);
}

bool call_after_the_end = false;

// Registered before the pool's handler, so it runs after it.
[[maybe_unused]] const int registered = std::atexit([] {
  if (call_after_the_end) std::_Exit(Count(10) == Ones(10) ? 0 : 1);
});

// Waits, at most a few seconds, until `expected` threads have arrived.
bool Meet(std::atomic<int>* arrived, int expected) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(20));
  ++*arrived;
  while (*arrived < expected) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

// The first test: SetDefaultShare() has not been called yet.
TEST(UnknownRanksLeaveOneThread) {
  unsetenv("COLLOPS_NUM_THREADS");
  EXPECT_EQ(NumThreads(), 1);
}

TEST(EachPartRunsOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ForceNumThreads(num_threads);
    for (const int num_parts : {0, 1, 2, 3, 100}) EXPECT_EQ(Count(num_parts), Ones(num_parts));
  }
}

TEST(PartsRunAtTheSameTime) {
  ForceNumThreads(3);
  std::atomic<int> arrived{0};
  std::atomic<int> met{0};
  ParallelFor(3, [&](int) { met += Meet(&arrived, 3) ? 1 : 0; });
  EXPECT_EQ(met.load(), 3);
}

// A product is such a series. Beside other load some threads do sleep, so one try in many counts.
TEST(CallsThatFollowEachOtherWakeNobody) {
  ForceNumThreads(2);
  const auto sleeps = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(20));
  auto least = sleeps();
  do {
    const auto before = sleeps();
    for (int call = 0; call < 20; ++call) {
      std::atomic<int> arrived{0};
      ParallelFor(2, [&](int) { Meet(&arrived, 2); });
    }
    least = std::min(least, sleeps() - before);
  } while (least > 1 && std::chrono::steady_clock::now() < deadline);
  EXPECT_TRUE(least <= 1);
}

TEST(ConcurrentCallersOfTheThreadPoolDoNotWait) {
  ForceNumThreads(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 300; ++call) wrong += Count(20) != Ones(20);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ACallerBesideABusyPoolRunsAllPartsItself) {
  ForceNumThreads(2);
  std::atomic<int> arrived{0};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    Meet(&arrived, 3);  // the pool is busy by then
    const std::thread::id self = std::this_thread::get_id();
    ParallelFor(8, [&](int) { wrong += std::this_thread::get_id() != self; });
    ++arrived;
  });
  ParallelFor(2, [&](int) {
    Meet(&arrived, 3);
    while (arrived < 4) std::this_thread::yield();
  });
  other.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(PartsMayCallAgain) {
  ForceNumThreads(3);
  std::atomic<int> arrived{0};
  std::atomic<int> wrong{0};
  ParallelFor(3, [&](int) {
    Meet(&arrived, 3);  // one part on each thread
    wrong += Count(9) != Ones(9);
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(SignalsAreLeftToTheProgram) {
  ForceNumThreads(3);
  const pthread_t caller = pthread_self();
  std::atomic<int> arrived{0};
  std::atomic<int> open{0};
  ParallelFor(3, [&](int) {
    Meet(&arrived, 3);
    if (pthread_equal(pthread_self(), caller)) return;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    open += sigismember(&blocked, SIGINT) != 1 || sigismember(&blocked, SIGTERM) != 1;
  });
  EXPECT_EQ(open.load(), 0);
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

TEST(AForkedChildMakesItsOwnThreads) {
  if (kUnderTsan) return;  // TSan allows no threads in such a child
  ForceNumThreads(3);
  EXPECT_EQ(Count(10), Ones(10));
  const pid_t child = fork();
  if (child == 0) {
    if (NumThreads() != 1) std::_Exit(3);  // the child must find out anew
    ForceNumThreads(2);
    std::atomic<int> arrived{0};
    std::atomic<int> met{0};
    ParallelFor(2, [&](int) { met += Meet(&arrived, 2) ? 1 : 0; });
    std::exit(met == 2 && Count(10) == Ones(10) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(Count(10), Ones(10));
}

// Threads of the program may still call after exit() has begun.
TEST(CallsAfterExitRunOnOneThread) {
  if (kUnderTsan) return;
  const pid_t child = fork();
  if (child == 0) {
    ForceNumThreads(3);
    Count(10);
    call_after_the_end = true;
    std::exit(2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(CoresAreSharedOutAmongTheRanks) {
  unsetenv("COLLOPS_NUM_THREADS");
  EXPECT_TRUE(SetDefaultShare(1).ok());
  EXPECT_EQ(NumThreads(), collops::FindUsableCores().count);
  EXPECT_TRUE(SetDefaultShare(2).ok());
  EXPECT_EQ(NumThreads(), std::max(1, collops::FindUsableCores().count / 2));
  EXPECT_TRUE(SetDefaultShare(1 << 20).ok());
  EXPECT_EQ(NumThreads(), 1);
  // A smaller group does not bring cores back: the other ranks still exist.
  EXPECT_TRUE(SetDefaultShare(1).ok());
  EXPECT_EQ(NumThreads(), 1);
}

TEST(TheEnvironmentChoosesTheNumberOfThreads) {
  setenv("COLLOPS_NUM_THREADS", "5", 1);
  EXPECT_TRUE(SetDefaultShare(2).ok());
  EXPECT_EQ(NumThreads(), 5);
  setenv("COLLOPS_NUM_THREADS", "none", 1);
  const collops::Status status = SetDefaultShare(2);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_CONTAINS(status.message(), "COLLOPS_NUM_THREADS");
  unsetenv("COLLOPS_NUM_THREADS");
}
