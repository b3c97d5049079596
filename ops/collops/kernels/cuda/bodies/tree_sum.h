#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/bodies/number.h"

// Sums by the tree of kernels/reduce/leaf_tree.h, with the bits of kernels::StoreSum().
namespace collops::cuda {

constexpr int kMostHolders = 256;
constexpr int kMostSummands = 2048;

// c = the total of all summands, added by the tree in float32, + residual; rounded once. The
// holders' summands lie one behind the other, those of a holder row by row: [rows, counts[holder],
// columns].
struct TreeSumArgs {
  static constexpr const char* kName = "collops_tree_sum";
  const float* summands;
  MatrixArgs residual;  // one row; may be missing
  MatrixArgs c;
  int64_t rows;
  int64_t columns;
  int32_t num_holders;
  uint8_t counts[kMostHolders];
  uint8_t adds[kMostSummands];  // kernels::SumTree of all summands
};

// A thread takes so many of a row.
constexpr int kNumbers = 4;

// The sums that wait, the last one first: registers have no index.
class WaitingSums {
 public:
  COLLOPS_DEVICE void Push(const float (&sum)[kNumbers]) {
    COLLOPS_UNROLLED
    for (int i = kMost - 1; i > 0; --i) Copy(sums_[i - 1], &sums_[i]);
    Copy(sum, &sums_[0]);
  }
  COLLOPS_DEVICE void PopAndAddTo(float (*sum)[kNumbers]) {
    COLLOPS_UNROLLED
    for (int j = 0; j < kNumbers; ++j) (*sum)[j] = sums_[0][j] + (*sum)[j];
    COLLOPS_UNROLLED
    for (int i = 0; i + 1 < kMost; ++i) Copy(sums_[i + 1], &sums_[i]);
  }

 private:
  static constexpr int kMost = 12;  // of kernels::kMostLeaves

  static COLLOPS_DEVICE void Copy(const float (&from)[kNumbers], float (*to)[kNumbers]) {
    COLLOPS_UNROLLED
    for (int j = 0; j < kNumbers; ++j) (*to)[j] = from[j];
  }

  float sums_[kMost][kNumbers] = {};
};

template <class Block>
COLLOPS_DEVICE void TreeSum(const TreeSumArgs& args, Block& block) {
  const auto step = [&](int64_t row, int64_t column, int count) {
    WaitingSums waiting;
    float sum[kNumbers] = {};
    const float* from = args.summands;
    int32_t summand = 0;
    COLLOPS_ROLLED
    for (int32_t holder = 0; holder < args.num_holders; ++holder) {
      const int32_t own = args.counts[holder];
      COLLOPS_ROLLED
      for (int32_t i = 0; i < own; ++i, ++summand) {
        if (summand > 0) waiting.Push(sum);
        const MatrixArgs matrix = {const_cast<float*>(from) + i * args.columns, own * args.columns,
                                   1, DType::kFloat32};
        LoadNumbers<Real<float>>(matrix, row, column, count, sum);
        COLLOPS_ROLLED
        for (int added = args.adds[summand]; added > 0; --added) waiting.PopAndAddTo(&sum);
      }
      from += args.rows * own * args.columns;
    }
    if (args.residual.data != nullptr) {
      float residual[kNumbers] = {};
      LoadAny(args.residual, 0, column, count, residual);
      COLLOPS_UNROLLED
      for (int j = 0; j < kNumbers; ++j) sum[j] = sum[j] + residual[j];
    }
    StoreAny(args.c, row, column, count, sum);
  };
  ForEachGroup<kNumbers>(args.rows, args.columns, block, step);
}

}  // namespace collops::cuda
