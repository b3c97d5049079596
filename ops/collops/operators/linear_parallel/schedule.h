#pragma once

#include <cstdint>
#include <vector>

#include "collops/core/status.h"
#include "collops/operators/linear_parallel/engine.h"

namespace collops {

// Some rows of every member, gathered by one AllGatherV to where they belong among all rows. In
// elements. Where there is nothing to gather, one chunk without elements is left, with which a
// backend compares the calls.
struct GatherChunk {
  int64_t row = 0;  // of each member
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

// Rows that one product of the first strip takes, once they are there.
struct RowPiece {
  static constexpr int kInX = -1;  // this rank's own rows, which need no other rank

  int chunk = kInX;
  int64_t begin = 0;  // among all rows
  int64_t rows = 0;
};

// A strip of columns: of its products, and of the sums that are scattered.
struct ColumnStrip {
  int64_t begin = 0;
  int64_t columns = 0;
  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

// What kStreams does for one plan, and where its scratch memory lies in the workspace. The cuts are
// equal on all ranks of a group, but for the pieces, which are one rank's. A tile holds the float32
// products of a strip, `slots` this rank's part of their sum; there are two of each, so that a
// strip is multiplied while the one before is summed. No strip is wider than the first.
struct StreamSchedule {
  static constexpr int kSlots = 2;

  // One collective or product after the other on the caller's stream, in pieces as long as memory
  // allows, and so only one slot.
  bool in_turn = false;
  int num_slots() const { return in_turn ? 1 : kSlots; }

  std::vector<GatherChunk> gathers;
  std::vector<RowPiece> pieces;
  std::vector<ColumnStrip> strips;
  bool overlaps = false;     // collectives and products run at the same time, on two streams
  bool sums = false;         // over the ranks of the scatter group
  bool all_reduces = false;  // and every one of them gets all rows
  bool has_tiles = false;    // else products go right into the output
  bool converts = false;     // operands become float32, because products of their type do not

  int64_t gathered = 0;
  int64_t float_rows = 0;    // the gathered rows in float32
  int64_t float_weight = 0;  // the weight in float32
  int64_t tiles[kSlots] = {};
  int64_t slots[kSlots] = {};
  int64_t sum_scratch = 0;  // of the reductions, which run one after the other
  int64_t scratch = 0;      // of the products
  int64_t scratch_bytes = 0;
};

// Sets the plan's schedules and memory. An error if the device has no such products.
Status PlanStreams(LinearPlan* plan);

// What a call takes where ranks share a device, by a model of bytes, launches and multiprocessors.
// It knows what the ranks have agreed on and told each other only, so it is equal on all of them.
struct StreamTimes {
  double product_us = 0;  // of the products alone, of all ranks of a device
  double in_turn_us = 0;
  double overlapped_us = 0;
};
StreamTimes ModelTimes(const LinearPlan& plan, const DeviceShare& share);

// The plan's schedule for ranks that lie on devices like this.
const StreamSchedule& ChooseSchedule(const LinearPlan& plan, const DeviceShare& share);

}  // namespace collops
