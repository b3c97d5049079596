#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"

// Memory through which the ranks of a group meet on their GPUs. Each rank has a region, in its own
// GPU's memory, that all peers can write: a rank waits for words of its own region only, and a peer
// stores there what this rank waits for.
namespace collops::cuda {

inline constexpr int kMostRanks = 32;
// Blocks of a kernel whose data goes through the regions.
inline constexpr int kMostWorkers = 32;
// A message of at most so many bytes is written into its receiver's cell, with the step in every
// word: it needs no signal, and nobody waits until it was read.
inline constexpr int64_t kInlineBytes = 8192;
COLLOPS_DEVICE inline bool IsInline(int64_t bytes) {
  return bytes <= kInlineBytes;
}
// And a worker takes so many bytes of it, so that each of its threads has a word of each message.
inline constexpr int64_t kMessageRange = 2048;

// A cell has a word for 4 bytes of data. Its head comes first, then a message.
inline constexpr int64_t kHeadWords = 8;
inline constexpr int64_t kCellWords = kHeadWords + kInlineBytes / 4;
inline constexpr int64_t kCellBytes = kCellWords * 8;

// What a rank counts for itself. Only its own kernels write it.
struct OwnCounts {
  uint64_t step;     // the last step that has ended
  uint32_t arrived;  // blocks of the running kernel that have begun
  uint32_t ended;    // and that have ended
  uint32_t failed;   // 1: no data moves any more
  uint32_t unused[11];
};
static_assert(sizeof(OwnCounts) == 64);

// The beginning of a region. A row has a word for each rank that writes there.
struct RegionHead {
  OwnCounts own;
  uint64_t read[kMostRanks];  // the last step whose data that rank has read here
  // Where each rank has its data in the running step: from the gate of a call for its other
  // kernels.
  uint64_t addresses[kMostRanks];
  // Data that goes through the regions: pieces that worker w of that rank has staged there for this
  // rank, and pieces of this rank's worker w that that rank has taken. See StagedCount().
  uint64_t staged[kMostRanks][kMostWorkers];
  uint64_t taken[kMostRanks][kMostWorkers];
};

// The rest of a region of `size` ranks: cells for steps with an even and with an odd number, one of
// each rank; rows in which messages of cells are unpacked before they are reduced; and the slots in
// which this rank stages pieces, two per worker.
struct RegionLayout {
  int64_t size;
  int64_t num_workers;
  int64_t slot_bytes;

  COLLOPS_DEVICE int64_t CellAt(uint64_t step, int64_t rank) const {
    return static_cast<int64_t>(sizeof(RegionHead)) +
           (static_cast<int64_t>(step % 2) * size + rank) * kCellBytes;
  }
  COLLOPS_DEVICE int64_t RowAt(int64_t rank) const {
    return CellAt(0, 2 * size) + rank * kInlineBytes;
  }
  COLLOPS_DEVICE int64_t SlotAt(int64_t worker, int64_t piece) const {
    return RowAt(size) + (worker * 2 + piece % 2) * slot_bytes;
  }
  COLLOPS_DEVICE int64_t Bytes() const { return SlotAt(num_workers, 0); }
};

// What the kernels of a group tell the host, in memory of the host: that the ranks disagree, with
// the terms of every rank. `step` is stored last.
struct Verdict {
  uint64_t step;  // 0: nothing was found
  uint64_t digests[kMostRanks];
  uint64_t balances[kMostRanks];
};

// A group as one rank's kernels know it; passed by value.
struct Group {
  int32_t rank;
  int32_t size;
  // 1: an address of one rank is one of every rank, so that data is read where it lies; also in a
  // group of one rank. 0: it goes through the regions.
  int32_t is_direct;
  int32_t num_workers;
  int64_t slot_bytes;
  char* regions[kMostRanks];  // as this rank's GPU addresses them
  const uint32_t* stop;       // memory of the host: not 0 ends every wait
  uint64_t* wait;             // memory of the host: changes while a block waits, see WaitWord()
  Verdict* verdict;

  COLLOPS_DEVICE RegionLayout Layout() const { return {size, num_workers, slot_bytes}; }
  COLLOPS_DEVICE RegionHead* Head(int64_t of) const {
    return reinterpret_cast<RegionHead*>(regions[of]);
  }
  COLLOPS_DEVICE OwnCounts* Own() const { return &Head(rank)->own; }
  // The cell in the region of `reader` that `writer` writes.
  COLLOPS_DEVICE uint64_t* Cell(uint64_t step, int64_t reader, int64_t writer) const {
    return reinterpret_cast<uint64_t*>(regions[reader] + Layout().CellAt(step, writer));
  }
  COLLOPS_DEVICE char* Row(int64_t of) const { return regions[rank] + Layout().RowAt(of); }
  COLLOPS_DEVICE char* Slot(int64_t of, int64_t worker, int64_t piece) const {
    return regions[of] + Layout().SlotAt(worker, piece);
  }
};

}  // namespace collops::cuda
