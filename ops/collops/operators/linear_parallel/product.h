#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collops/comm/fused_call.h"
#include "collops/operators/linear_parallel/engine.h"

namespace collops {

// Bytes of the float32 product of all rows and one strip of columns.
inline int64_t TileBytes(const LinearPlan& plan) {
  return plan.layout.total_rows * plan.gemm.StripColumns(0) * int64_t{sizeof(float)};
}

// Rows that are packed and multiplied at a time where memory must stay bounded: so many that the
// time to pack the weight anew for each of such pieces does not count.
constexpr int64_t kMostRowsAtOnce = 85 * kernels::kGemmRowUnit;

// The product of one group of packed rows and one strip of a weight without gaps: a tile whose rows
// lie as many floats apart as the strip has columns. `scratch` has WeightBlockBytes() bytes.
void MultiplyStrip(const kernels::GemmPlan& gemm, const void* panels, int64_t rows,
                   const void* weight, int64_t strip, void* scratch, float* tile,
                   const kernels::TileScale& scale = {});

// Scales in float32: of an int64 ATB reads the lower half as one. At any address.
void ReadScales(DType dtype, const void* from, int64_t count, float* to);

std::byte* Aligned(void* workspace, int64_t alignment);

// Runs a planned call. `workspace` has plan.memory.bytes bytes, of any alignment.
Status RunLinear(const LinearPlan& plan, const LinearTensors& tensors, const Agreement& agreement,
                 void* workspace, Communicator* communicator, void* stream,
                 KeepAlive keep = nullptr);

// The places of what GatheredRows and LinearStrip need, the first of the plan.
Places PlaceRows(LinearPlan* plan);

// Packs a constant weight for all products with this weight; null if there is no memory for it.
std::shared_ptr<const void> PackWeight(const kernels::GemmPlan& gemm, const void* weight);

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
  void Take(size_t member, const MatrixPart& part) const;

  // Few rows are packed when the first strip is multiplied: together if Join() was called, which
  // needs all of them to be there; else a member's by themselves before Pack(member) returns.
  bool joins() const { return raw_ != nullptr; }
  bool joined() const { return joined_.panels != nullptr; }
  void Join();
  const Group& all() const { return joined_; }
  void Pack(size_t member);

 private:
  void CopyPart(const MatrixPart& part, std::byte* to) const;
  void PackRaw(const Group& group) const;

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
  // A group of packed rows, and where their product goes: the tiles of the group's roots.
  struct Task {
    const GatheredRows::Group& group;
    float* tile;
  };

  explicit LinearStrip(const LinearRun& run) : run_(run) {}

  // Multiplies all of them by one block of the weight, which is packed once, here or earlier; few
  // rows by all blocks of the strip with the first one. The tiles' rows lie `ld_tile` floats apart,
  // a group's tiles as many bytes as TileBytes() says.
  void Multiply(const std::vector<Task>& tasks, int64_t strip, int64_t k_block, int64_t ld_tile);

  // Rounds the sum of tiles, in their order or by the plan's tree, and the residual into `rows`
  // rows of the output.
  void Store(const float* const* tiles, size_t num_tiles, int64_t ld_tile, int64_t strip,
             int64_t output_row, int64_t rows) const;

  // The same for all rows in two steps: the sum, which may replace one of the tiles; and what is
  // stored of that.
  void Sum(const float* const* tiles, size_t num_tiles, int64_t ld_tile, int64_t strip,
           float* sum) const;
  void StoreSummed(const float* sum, int64_t ld_tile, int64_t strip) const;

 private:
  // Its columns of a strip, or null.
  const void* Residual(int64_t strip) const;

  const LinearRun& run_;
  std::vector<kernels::RowGroup> groups_;  // of one Multiply()
};

}  // namespace collops
