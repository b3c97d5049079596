#pragma once

#include <cstddef>
#include <vector>

#include "collops/comm/fused_call.h"
#include "collops/operators/linear_parallel/engine.h"

namespace collops {

// Bytes of the float32 product of all rows and one strip of columns.
inline int64_t TileBytes(const LinearPlan& plan) {
  return plan.layout.total_rows * plan.product->StripColumns(0) * int64_t{sizeof(float)};
}

// The places of what GatheredRows and LinearStrip need, the first of the plan.
Places PlaceRows(LinearPlan* plan);

// The rows that are multiplied, packed as they come: one group of panels for each member that is
// gathered from, or one for all where they are few. Lives during one call; waits for no one.
class GatheredRows {
 public:
  struct Group {
    int64_t first_row = 0;  // among all gathered rows
    int64_t rows = 0;
    std::byte* panels = nullptr;
  };

  explicit GatheredRows(const LinearRun& run);

  // One for each member.
  const std::vector<Group>& groups() const { return groups_; }

  // Takes a part of the rows of a member, and copies it to where the gathered x is wanted.
  Status Take(size_t member, const MatrixPart& part) const;

  // Few rows are packed when the first strip is multiplied: together if Join() was called, which
  // needs all of them to be there; else a member's by themselves before Pack(member) returns.
  bool joins() const { return raw_ != nullptr; }
  bool joined() const { return joined_.panels != nullptr; }
  Status Join();
  const Group& all() const { return joined_; }
  Status Pack(size_t member);

 private:
  Status CopyPart(const MatrixPart& part, std::byte* to) const;
  Status PackRaw(const Group& group) const;

  const LinearRun& run_;
  const int64_t row_bytes_;
  std::vector<Group> groups_;
  std::vector<bool> packed_;
  Group joined_;
  std::byte* raw_ = nullptr;  // few rows as they are; null: rows are packed as they come
};

// The product of packed rows and one strip of the weight's columns. Lives during one call.
class LinearStrip {
 public:
  explicit LinearStrip(const LinearRun& run) : run_(run) {}

  static kernels::ProductTask Task(const GatheredRows::Group& group, float* tile) {
    return {group.panels, group.rows, tile};
  }

  // Multiplies all of them by one block of the weight. The tiles' rows lie `ld_tile` floats apart.
  Status Multiply(const std::vector<kernels::ProductTask>& tasks, int64_t strip, int64_t k_block,
                  int64_t ld_tile) const;

  // Rounds the sum of tiles, in their order, and the residual into `rows` rows of the output.
  Status Store(const float* const* tiles, size_t num_tiles, int64_t ld_tile, int64_t strip,
               int64_t output_row, int64_t rows) const;

 private:
  const LinearRun& run_;
};

}  // namespace collops
