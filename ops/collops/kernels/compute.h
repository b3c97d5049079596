#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops::kernels {

// Rows [row, row + rows) and columns [k_begin, k_end) of a group of rows of A. `x` points at the
// first of these elements; rows are `ldx` elements apart.
struct RowsPiece {
  const void* x = nullptr;
  int64_t ldx = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t k_begin = 0;
  int64_t k_end = 0;
};

// A group of packed rows, and where their product is stored.
struct ProductTask {
  const void* packed_rows = nullptr;
  int64_t rows = 0;
  float* tile = nullptr;
};

// A weight [n, k], or [k, n] without trans_weight, with contiguous rows.
struct ProductWeight {
  const void* data = nullptr;
  const void* packed = nullptr;  // the weight packed by Product::PackWeight, or null
};

// What one Multiply() computes: the columns of one strip, summed over one block of k.
struct ProductStep {
  int64_t strip = 0;
  int64_t k_block = 0;
  int64_t ld_tile = 0;      // floats between the rows of a tile
  void* scratch = nullptr;  // of scratch_bytes()
};

// One product C[rows, n] = A[rows, k] * W of a device, summed in float32. It is cut into strips of
// columns, and each strip into blocks of k, so that rows, columns and k may arrive and leave in
// pieces. An element is summed in the order of k, so its bits do not depend on the grouping of rows
// or on the pieces. Immutable; any thread. Work on a device is put on `stream`, which the CPU
// ignores; nothing here waits.
class Product {
 public:
  virtual ~Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  int64_t k() const { return cut_.k; }
  int64_t n() const { return cut_.n; }
  int64_t num_k_blocks() const { return cut_.num_k_blocks; }
  int64_t num_strips() const { return (cut_.n + cut_.strip_columns - 1) / cut_.strip_columns; }
  int64_t StripBegin(int64_t strip) const { return strip * cut_.strip_columns; }
  int64_t StripColumns(int64_t strip) const {
    return std::min(cut_.strip_columns, cut_.n - StripBegin(strip));
  }

  // Bytes of a group of packed rows, all of k. Two groups never take less than one of all rows.
  virtual int64_t PackedRowsBytes(int64_t rows) const = 0;

  // Packs a piece of a group of `group_rows` rows. `row` is a multiple of Compute::row_unit(), and
  // so is `rows` except at the group's end; a piece of some columns begins and ends at whole lines
  // of 128 bytes of its rows, except at k. Pieces may come in any order.
  virtual Status PackRows(const RowsPiece& piece, int64_t group_rows, void* packed,
                          void* stream) const = 0;

  // Bytes of scratch memory that Multiply() takes.
  virtual int64_t scratch_bytes() const = 0;

  // tile = (k_block == 0 ? 0 : tile) + rows * W, for all tasks. The blocks of a strip are passed in
  // the order of k.
  virtual Status Multiply(const ProductTask* tasks, int num_tasks, const ProductWeight& weight,
                          const ProductStep& step, void* stream) const = 0;

  // output[i, j] = ((partials[0][i, j] + partials[1][i, j]) + ...) / divisor + residual[j] for the
  // columns of a strip, rounded once to the dtype. `residual` has n elements, or is null; `output`
  // has rows of n elements; both begin at column 0. `ld_partial` is in floats. At least one
  // partial.
  virtual Status StoreSum(const float* const* partials, int num_partials, int64_t ld_partial,
                          float divisor, const void* residual, int64_t rows, int64_t strip,
                          void* output, void* stream) const = 0;

  // Packs a constant weight for all products with this weight; null if there is no memory for its
  // packed_weight_bytes().
  virtual int64_t packed_weight_bytes() const = 0;
  virtual std::shared_ptr<const void> PackWeight(const void* weight) const = 0;

 protected:
  // Equal on all ranks with such a device, because ranks read each other's strips.
  struct Cut {
    int64_t k = 0;
    int64_t n = 0;
    int64_t strip_columns = 1;
    int64_t num_k_blocks = 1;  // at least 1, so that the first block sets C even where k is 0
  };

  explicit Product(const Cut& cut) : cut_(cut) {}

 private:
  const Cut cut_;
};

// The products and sums of one kind of device, for operators that compute while ranks move data.
// Knows no ranks; a communicator returns its device's. Immutable, lives as long as the process.
class Compute {
 public:
  virtual ~Compute() = default;

  // Rows may be packed in pieces of a multiple of this many; equal on all ranks.
  virtual int64_t row_unit() const = 0;
  // Packed rows, tiles and scratch memory begin at multiples of this many bytes.
  virtual int64_t alignment() const = 0;

  // A product of float32, bfloat16 or float16.
  virtual std::shared_ptr<const Product> Plan(DType dtype, int64_t k, int64_t n,
                                              bool trans_weight) const = 0;

  // Copies `bytes` of each of `rows` rows, which are `ld_from` bytes apart in `from` and `ld_to` in
  // `to`.
  virtual Status CopyRows(void* to, int64_t ld_to, const void* from, int64_t ld_from, int64_t rows,
                          int64_t bytes, void* stream) const = 0;
};

// The CPU's, with gemm.h and reduce.h.
const Compute* CpuCompute();

}  // namespace collops::kernels
