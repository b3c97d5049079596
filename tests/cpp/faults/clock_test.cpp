// The wall clock jumps by years while ranks wait: nothing ends early, late, or otherwise. This
// program's own clock_gettime() stands before libc's, so the core and libstdc++ call it too.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"
#include "sanitized.h"

namespace {

using collops::Communicator;

std::atomic<int> looks{0};  // at the wall clock
std::atomic<int> steady_looks{0};

// Ten years ahead at every second look.
time_t Jumped(time_t seconds) {
  return ++looks % 2 == 0 ? seconds + time_t{10} * 365 * 86400 : seconds;
}

}  // namespace

#ifndef COLLOPS_SANITIZED
// So that libstdc++ finds them.
#define VISIBLE __attribute__((visibility("default")))
extern "C" VISIBLE int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec = Jumped(now->tv_sec);
  if (clock == CLOCK_MONOTONIC) ++steady_looks;
  return result;
}

extern "C" VISIBLE int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

extern "C" VISIBLE time_t time(time_t* now) noexcept {
  timespec precise{};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}
#endif

TEST(TheWallClockOfThisProgramJumps) {
  if (kSanitized) return;
  const auto first = std::chrono::system_clock::now();
  const auto second = std::chrono::system_clock::now();
  EXPECT_TRUE(std::chrono::abs(second - first) > std::chrono::hours(24 * 365));
  EXPECT_TRUE(std::chrono::steady_clock::now().time_since_epoch().count() > 0);
  EXPECT_TRUE(steady_looks > 0);
}

// First contact, calls in which one rank is late, a started call, messages, a time-out: no look at
// the wall clock.
TEST(NoWaitLooksAtTheWallClock) {
  if (kSanitized) return;
  const ranks::Event timed_out;
  ranks::Run(3, [&timed_out](int rank, Communicator& comm) {
    const int before = looks;
    if (rank == 2) usleep(50000);
    EXPECT_EQ(comm.Barrier().message(), "");
    if (rank == 1) usleep(50000);
    EXPECT_EQ(comm.Barrier().message(), "");
    Communicator::Handle handle;
    EXPECT_EQ(comm.Start("Barrier", [&comm] { return comm.Barrier(); }, &handle).message(), "");
    if (rank == 0) usleep(50000);
    EXPECT_EQ(comm.Wait(handle).message(), "");
    if (rank == 0) comm.set_timeout_s(0.5);
    const auto start = std::chrono::steady_clock::now();
    if (rank == 1) timed_out.Wait();
    EXPECT_EQ(comm.Barrier().code(), collops::ERROR_TIMEOUT);
    if (rank == 0) timed_out.Set();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    // The others may have begun later than the rank whose time-out it is.
    if (rank == 0) EXPECT_TRUE(took.count() > 0.45);
    EXPECT_TRUE(took.count() < check::Patience(5));
    EXPECT_EQ(looks, before);
    EXPECT_TRUE(steady_looks > 0);
  });
}
