#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

constexpr int64_t kGemmAlignment = 64;

// Columns of C in a strip, on every machine; the last strip may have fewer.
constexpr int64_t kGemmStripColumns = 384;

// Every row_tile divides this, so rows may come in pieces of a multiple of it.
constexpr int64_t kGemmRowUnit = 48;

// k_begin of PackRows() is a multiple of this.
constexpr int64_t kGemmStepK = 32;

struct GemmKernels;  // gemm_kernels.h

// How a product is cut: computed from dtype, shape and the kernels in use.
struct GemmPlan {
  DType dtype;
  int64_t k;
  int64_t n;
  bool trans_weight;
  int64_t row_tile;  // rows of a panel
  int64_t block_k;   // elements of k in a block; the last may have fewer
  const GemmKernels* kernels;

  // At least 1, so that the first block sets C even where k is 0.
  int64_t num_k_blocks() const { return k == 0 ? 1 : (k + block_k - 1) / block_k; }
  int64_t KBlockSize(int64_t k_block) const { return Piece(k_block, block_k, k); }
  int64_t num_strips() const { return (n + kGemmStripColumns - 1) / kGemmStripColumns; }
  int64_t StripBegin(int64_t strip) const { return strip * kGemmStripColumns; }
  int64_t StripColumns(int64_t strip) const { return Piece(strip, kGemmStripColumns, n); }

 private:
  static int64_t Piece(int64_t index, int64_t size, int64_t whole) {
    const int64_t left = whole - index * size;
    return left < size ? left : size;
  }
};

}  // namespace collops::kernels
