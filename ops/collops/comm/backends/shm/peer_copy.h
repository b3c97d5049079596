#pragma once

#include <cstdint>

namespace collops::shm {

// How a copy's stores go: through this core's caches, or past them.
enum class CopyWay { kCached, kStreamed };

// Which way is faster of late, by the time that copies took. The slower way is tried now and then,
// by several copies in a row: the first ones find their lines where the other way has left them.
class CopyChoice {
 public:
  // One copy of so many goes the way that seems slower, kTries in a row.
  static constexpr uint32_t kTriedEvery = 32;
  static constexpr uint32_t kTries = 12;

  // The way of the next copy, and whether to tell Learn() its time.
  CopyWay Next(int64_t bytes, bool* timed);
  void Learn(CopyWay way, double ns_per_kib);

 private:
  double& cost(CopyWay way) { return cost_[static_cast<int>(way)]; }

  double cost_[2] = {};  // ns per KiB; 0: not known yet
  uint32_t copies_ = 0;
  bool tries_ = false;  // the last copy was to go the way that seems slower
  CopyWay last_ = CopyWay::kCached;
  uint32_t in_a_row_ = 0;  // copies the last way
};

// Copies into memory that peers read next, in the way that is faster. If the cores share a cache,
// that is through it. If they do not, each store has to take its line away from a reader's cache
// first, and past the caches a copy takes less than half the time. The cores of a virtual machine
// move while a program runs, so the choice is never final. Each rank chooses for itself; results do
// not depend on it. One thread at a time.
class PeerCopy {
 public:
  void Copy(void* destination, const void* source, int64_t bytes);

 private:
  CopyChoice choice_;
};

}  // namespace collops::shm
