#pragma once

#include <algorithm>
#include <cstdint>

#include "collops/comm/fused_call.h"

namespace collops::shm {

// How a matrix goes through a stage: in parts of full rows or, if rows are long, of some columns of
// a few rows. Equal on every rank. A part has a multiple of `row_unit` rows, and its width is a
// whole number of cache lines.
class MatrixCut {
 public:
  static constexpr int64_t kPartBytes = 256 << 10;

  MatrixCut() = default;
  MatrixCut(int64_t rows, int64_t row_bytes, int64_t row_unit)
      : rows_(rows), row_bytes_(row_bytes) {
    const int64_t units = kPartBytes / std::max<int64_t>(row_unit * row_bytes, 1);
    part_rows_ = row_unit * std::max<int64_t>(units, 1);
    part_width_ = units > 0 ? std::max<int64_t>(row_bytes, 1) : kPartBytes / row_unit / 128 * 128;
    across_ = (row_bytes + part_width_ - 1) / part_width_;
  }

  int64_t num_parts() const { return (rows_ + part_rows_ - 1) / part_rows_ * across_; }

  // Part `index` of the matrix, without data and ld_bytes, which the caller sets.
  MatrixPart Part(int64_t index) const {
    MatrixPart part;
    part.row = index / across_ * part_rows_;
    part.rows = std::min(part_rows_, rows_ - part.row);
    part.begin = index % across_ * part_width_;
    part.end = std::min(part.begin + part_width_, row_bytes_);
    return part;
  }

 private:
  int64_t rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t part_rows_ = 1;
  int64_t part_width_ = 1;
  int64_t across_ = 0;
};

}  // namespace collops::shm
