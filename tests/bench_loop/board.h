// Memory that the ranks of the loop share beside the library: a barrier and the samples. So every
// build is timed with the same barrier. A memfd whose number the ranks get as an argument.
#ifndef COLLOPS_TESTS_BENCH_LOOP_BOARD_H_
#define COLLOPS_TESTS_BENCH_LOOP_BOARD_H_

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

constexpr int kRanks = 2;
constexpr int kMostCalls = 1 << 16;

// Thread-safe by its atomics. Barrier() waits for the other rank, however long.
struct Board {
  alignas(128) std::atomic<unsigned> arrived;
  alignas(128) std::atomic<unsigned> phase;
  alignas(128) std::atomic<unsigned> flags[kRanks][32];  // the first of each line
  alignas(128) double samples[kRanks][kMostCalls];

  static Board* Map(int fd) {
    void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<Board*>(memory);
  }

  void Barrier() {
    constexpr int kSpins = 1 << 14;
    const unsigned before = phase.load(std::memory_order_acquire);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) == kRanks - 1) {
      arrived.store(0, std::memory_order_relaxed);
      phase.store(before + 1, std::memory_order_release);
      return;
    }
    for (int i = 1; phase.load(std::memory_order_acquire) == before; ++i) {
      if (i % kSpins == 0) sched_yield();
    }
  }

  // Sends a flag back and forth: how far apart the two cores are just now. Waits for the other
  // rank.
  void PassFlag(int rank, int times) {
    std::atomic<unsigned>& mine = flags[rank][0];
    const std::atomic<unsigned>& other = flags[1 - rank][0];
    for (int i = 0; i < times; ++i) {
      const unsigned next = mine.load(std::memory_order_relaxed) + 1;
      if (rank == 0) mine.store(next, std::memory_order_release);
      while (other.load(std::memory_order_acquire) != next) {
      }
      if (rank == 1) mine.store(next, std::memory_order_release);
    }
  }

  // The median over calls of the slower rank's time.
  double Median(int calls) const {
    std::vector<double> slower;
    for (int i = 0; i < calls; ++i) slower.push_back(std::max(samples[0][i], samples[1][i]));
    std::nth_element(slower.begin(), slower.begin() + calls / 2, slower.end());
    return slower[static_cast<size_t>(calls / 2)];
  }
};

inline double NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

#endif  // COLLOPS_TESTS_BENCH_LOOP_BOARD_H_
