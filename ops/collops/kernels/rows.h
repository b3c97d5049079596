#pragma once

#include <cstdint>
#include <vector>

#include "collops/core/dtype.h"

namespace collops::kernels {

// Rows by index. All use threads where there is much to do; the bits are the same on every
// instruction set. No output overlaps an input.

// Where copies of rows lie: copy k of row t has the number positions[t * copies + k] of rows of
// `stride` bytes; below 0 there is no such copy.
struct RowPlaces {
  const int64_t* positions = nullptr;
  int64_t rows = 0;
  int64_t copies = 0;
  int64_t stride = 0;
};

// Writes each row, of `row_bytes`, to its places in `to`, which differ, and its scale after it, if
// there are `scales`.
void SpreadRows(const RowPlaces& places, const void* rows, int64_t row_bytes, const void* scales,
                void* to);

// Whether the two below take elements of that type: float32, float16 and bfloat16.
bool CanWeigh(DType dtype);

// As SpreadRows(), of rows as int8: scale = max |x| / 127 in float32, and x / scale rounded to the
// nearest even within [-127, 127]; 0 where the scale is 0, and of a NaN.
void QuantizeRows(const RowPlaces& places, DType dtype, const void* rows, int64_t columns,
                  void* to);

// out[t] = sum over k of weights[t * copies + k] * (the row at the place of t and k in `from`), in
// float32: k ascending, from 0 on, each product and each sum rounded; rounded once to `dtype` at
// the end. Without `weights` these are 1.
void WeightedSums(const RowPlaces& places, DType dtype, const void* from, int64_t columns,
                  const float* weights, void* out);

// Rows of `from` that are copied to others.
struct RowRange {
  int64_t to;
  int64_t from;
  int64_t rows;
};

// Copies ranges of rows of `row_bytes`. With `scales`, each row of `from` has its scale after it.
void CopyRows(const std::vector<RowRange>& ranges, const void* from, int64_t row_bytes, void* to,
              float* scales);

}  // namespace collops::kernels
