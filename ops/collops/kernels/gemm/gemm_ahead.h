#pragma once

#include <cstdint>

#include "collops/kernels/copy/streaming.h"

// In an unnamed namespace for the reason given in vector.h.
namespace collops::kernels {
namespace {

// Prefetches `rows` rows of `row_bytes` bytes, `ld_bytes` apart, a few lines at a time, while other
// work is computed. Prefetching does not read, so rows may end anywhere.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* first, int64_t rows, int64_t row_bytes, int64_t ld_bytes)
      : row_(static_cast<const char*>(first)),
        rows_(row_bytes > 0 ? rows : 0),
        row_bytes_(row_bytes),
        ld_bytes_(ld_bytes) {}

  // The number of lines in all, so that a caller can spread them.
  int64_t num_lines() const { return rows_ * ((row_bytes_ + kLineBytes - 1) / kLineBytes); }

  [[gnu::always_inline]] void Fetch(int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(row_ + done_, 0, 2);
      done_ += kLineBytes;
      if (done_ >= row_bytes_) {
        done_ = 0;
        row_ += ld_bytes_;
        --rows_;
      }
    }
  }

 private:
  const char* row_ = nullptr;
  int64_t rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t ld_bytes_ = 0;
  int64_t done_ = 0;
};

// What a tile prefetches for later tiles, some at each of its steps.
struct Fetches {
  Ahead weight;  // the block of the weight that is packed next
  Ahead rows;    // panels of the rows that are multiplied next
  Ahead sums;    // where the next tile's sums are stored
  int64_t weight_lines = 0;

  [[gnu::always_inline]] void Step() {
    weight.Fetch(weight_lines);
    rows.Fetch(1);
    sums.Fetch(3);
  }
};

}  // namespace
}  // namespace collops::kernels
