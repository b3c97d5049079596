// Memory that the ranks of a run share beside the measured library: a barrier, flags, and the
// samples. So every library is timed with the same barrier and the same clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "measure/point.h"

namespace bench {

constexpr int kMostSamples = 4096;

struct Sample {
  double begin_us;
  double end_us;
};

// What lies in the memory; all zero is its first state.
struct BoardMemory {
  alignas(128) std::atomic<unsigned> arrived;
  alignas(128) std::atomic<unsigned> phase;
  alignas(128) std::atomic<unsigned> wrong_ranks;
  alignas(128) std::atomic<unsigned> looks;  // at flags; ranks that take no part wait for the next
  alignas(128) std::atomic<int> goes_on;
  alignas(128) std::atomic<unsigned> flags[kMaxRanks][32];  // the first of each line
  alignas(128) double flag_us;
  alignas(128) int cores[kMaxRanks];
  alignas(128) Sample samples[kMaxRanks][kMostSamples];
};

// One rank's view of the memory, which it maps for the life of the process. Every function but
// Create(), Map() and samples() is called by all ranks and waits for them, however long.
class Board {
 public:
  // The descriptor of new memory that has no name, so a crash leaves nothing behind; -1 on error.
  static int Create();
  // Null on error.
  static BoardMemory* Map(int descriptor);

  // Pins this rank to core number rank % cores of those on which the process may run.
  Board(BoardMemory* memory, int rank, int ranks);

  void Barrier();
  // Rank 0's decision, told to all.
  bool GoesOn(bool rank_0_says);
  // How long a word takes from rank 0 to the farthest other rank, in microseconds: a virtual
  // machine's host moves the cores between cache domains. 0 if all ranks run on one core.
  double FlagUs();
  // How many ranks say that they are wrong.
  int CountWrong(bool right);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::vector<int> cores() const { return {memory_->cores, memory_->cores + ranks_}; }
  Sample* samples(int rank) const { return memory_->samples[rank]; }

 private:
  void Rest(double waited_us) const;
  double FlagUsTo(int other);
  void PassFlag(int other, int times);

  BoardMemory* const memory_;
  const int rank_;
  const int ranks_;
  bool has_own_core_ = false;
};

double NowUs();

}  // namespace bench
