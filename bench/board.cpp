#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "measure.h"

namespace bench {
namespace {

constexpr int kSleepUs = 50;
constexpr int kLongSleepUs = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::vector<int> AllowedCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &allowed)) cores.push_back(core);
  }
  return cores;
}

int Pin(const std::vector<int>& allowed, int rank) {
  if (allowed.empty()) return -1;
  const int core = allowed[static_cast<size_t>(rank) % allowed.size()];
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(core), &one);
  return sched_setaffinity(0, sizeof(one), &one) == 0 ? core : -1;
}

}  // namespace

int Board::Create() {
  const int descriptor = memfd_create("bench", 0);
  if (descriptor >= 0 && ftruncate(descriptor, sizeof(BoardMemory)) == 0) return descriptor;
  return -1;
}

BoardMemory* Board::Map(int descriptor) {
  void* const memory =
      mmap(nullptr, sizeof(BoardMemory), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<BoardMemory*>(memory);
}

Board::Board(BoardMemory* memory, int rank, int ranks)
    : memory_(memory), rank_(rank), ranks_(ranks) {
  const std::vector<int> allowed = AllowedCores();
  has_own_core_ = static_cast<size_t>(ranks) <= allowed.size();
  memory_->cores[rank] = Pin(allowed, rank);
  Barrier();
}

void Board::Barrier() {
  const unsigned before = memory_->phase.load(std::memory_order_acquire);
  if (memory_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<unsigned>(ranks_)) {
    memory_->arrived.store(0, std::memory_order_relaxed);
    memory_->phase.store(before + 1, std::memory_order_release);
    return;
  }
  constexpr int kSpins = 64;
  double start_us = 0;
  for (int i = 1; memory_->phase.load(std::memory_order_acquire) == before; ++i) {
    Pause();
    if (i % kSpins != 0) continue;
    if (start_us == 0) start_us = NowUs();
    Rest(NowUs() - start_us);
  }
}

// A rank with a core of its own spins, so that all leave the barrier at once. Whoever waits for
// long sleeps: beside other programs, time spent with spinning is missing when all have come.
void Board::Rest(double waited_us) const {
  constexpr double kSpinsUs = 2e4;
  constexpr double kYieldsUs = 1e3;
  if (waited_us > (has_own_core_ ? kSpinsUs : kYieldsUs)) {
    usleep(kSleepUs);
  } else if (!has_own_core_) {
    sched_yield();
  }
}

bool Board::GoesOn(bool rank_0_says) {
  if (rank_ == 0) memory_->goes_on.store(rank_0_says, std::memory_order_relaxed);
  Barrier();
  const bool goes_on = memory_->goes_on.load(std::memory_order_relaxed) != 0;
  Barrier();
  return goes_on;
}

int Board::CountWrong(bool right) {
  if (rank_ == 0) memory_->wrong_ranks.store(0, std::memory_order_relaxed);
  Barrier();
  if (!right) memory_->wrong_ranks.fetch_add(1, std::memory_order_relaxed);
  Barrier();
  return static_cast<int>(memory_->wrong_ranks.load(std::memory_order_relaxed));
}

double Board::FlagUs() {
  double farthest_us = 0;
  for (int other = 1; other < ranks_; ++other) {
    if (memory_->cores[other] == memory_->cores[0]) continue;
    farthest_us = std::max(farthest_us, FlagUsTo(other));
  }
  return farthest_us;
}

double Board::FlagUsTo(int other) {
  constexpr int kTimes = 100;
  constexpr int kBlocks = 11;  // their median: a tick of the scheduler must not count
  const unsigned looks = memory_->looks.load(std::memory_order_acquire);
  Barrier();
  if (rank_ == 0 || rank_ == other) {
    std::vector<double> blocks;
    for (int i = 0; i < kBlocks; ++i) {
      const double start = NowUs();
      PassFlag(other, kTimes);
      blocks.push_back((NowUs() - start) / kTimes / 2);
    }
    std::nth_element(blocks.begin(), blocks.begin() + kBlocks / 2, blocks.end());
    if (rank_ == 0) {
      memory_->flag_us = blocks[kBlocks / 2];
      memory_->looks.store(looks + 1, std::memory_order_release);
    }
  }
  // The others sleep: one of them may share the core of a rank that looks.
  while (memory_->looks.load(std::memory_order_acquire) == looks) usleep(kLongSleepUs);
  Barrier();
  const double flag_us = memory_->flag_us;
  Barrier();
  return flag_us;
}

void Board::PassFlag(int other, int times) {
  constexpr int kSpins = 1 << 14;
  const int peer = rank_ == 0 ? other : 0;
  // A flag of rank 0's for each other rank, and one of that rank's.
  std::atomic<unsigned>& mine = rank_ == 0 ? memory_->flags[0][other] : memory_->flags[rank_][0];
  const std::atomic<unsigned>& theirs =
      rank_ == 0 ? memory_->flags[peer][0] : memory_->flags[0][rank_];
  for (int i = 0; i < times; ++i) {
    const unsigned next = mine.load(std::memory_order_relaxed) + 1;
    if (rank_ == 0) mine.store(next, std::memory_order_release);
    for (int spins = 1; theirs.load(std::memory_order_acquire) != next; ++spins) {
      if (spins % kSpins == 0) usleep(kSleepUs);  // the other rank's core does other work
    }
    if (rank_ != 0) mine.store(next, std::memory_order_release);
  }
}

double NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

}  // namespace bench
