// Matrices for tests of products: stored at any alignment with any leading dimension, and their
// products in pieces or in one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/half.h"

namespace matrices {

using collops::DType;
using namespace collops::kernels;

// Row-major numbers, which can be stored in any dtype.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;

  float At(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * columns + j)]; }
};

inline void Put(DType dtype, float value, char* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  if (dtype == DType::kInt8) {
    *to = static_cast<char>(static_cast<int8_t>(value));
    return;
  }
  const uint16_t half = dtype == DType::kBFloat16 ? FloatToBFloat16(value) : FloatToFloat16(value);
  std::memcpy(to, &half, sizeof(half));
}

inline float RoundTo(DType dtype, float value) {
  if (dtype == DType::kBFloat16) return BFloat16ToFloat(FloatToBFloat16(value));
  if (dtype == DType::kFloat16) return Float16ToFloat(FloatToFloat16(value));
  return value;
}

// A matrix in memory: at an odd address, with NaNs between its rows.
class Stored {
 public:
  Stored(const Matrix& matrix, DType dtype)
      : ld(matrix.columns + 3), element_bytes_(collops::SizeOf(dtype)) {
    bytes_.assign(static_cast<size_t>(1 + matrix.rows * ld * element_bytes_), '\xff');
    for (int64_t i = 0; i < matrix.rows; ++i) {
      for (int64_t j = 0; j < matrix.columns; ++j) Put(dtype, matrix.At(i, j), Address(i, j));
    }
  }
  const void* At(int64_t i, int64_t j) { return Address(i, j); }

  const int64_t ld;

 private:
  char* Address(int64_t i, int64_t j) { return bytes_.data() + 1 + (i * ld + j) * element_bytes_; }

  int64_t element_bytes_;
  std::vector<char> bytes_;
};

// Aligned memory for panels, full of NaNs.
class Panels {
 public:
  explicit Panels(int64_t bytes) : bytes_(static_cast<size_t>(bytes + kGemmAlignment), '\xff') {}
  char* data() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (-address & (kGemmAlignment - 1));
  }

 private:
  std::vector<char> bytes_;
};

// How a product is cut: in one piece, or randomly with `random`.
struct Cut {
  std::mt19937* random = nullptr;
  bool packed_before = false;
  bool in_passing = false;  // use MultiplyFewRows() for all rows that fit into one panel
  bool together = false;    // the pieces of rows are groups of one product
};

// Ends of pieces of [0, size): multiples of `step`, except the last.
inline std::vector<int64_t> Ends(int64_t size, int64_t step, const Cut& cut) {
  std::vector<int64_t> ends;
  for (int64_t end = 0; cut.random != nullptr && end < size;) {
    if (end > 0) ends.push_back(end);
    end += step * static_cast<int64_t>(1 + (*cut.random)() % 20);
  }
  ends.push_back(size);
  return ends;
}

inline void PackGroup(const GemmPlan& plan, Stored& x, int64_t first, int64_t rows, const Cut& cut,
                      char* panels) {
  int64_t row = 0;
  for (const int64_t row_end : Ends(rows, plan.row_tile, cut)) {
    int64_t k = 0;
    for (const int64_t k_end : Ends(plan.k, kGemmStepBytes / collops::SizeOf(plan.dtype), cut)) {
      PackRows(plan, x.At(first + row, k), x.ld, row, row_end - row, k, k_end, rows, panels);
      k = k_end;
    }
    row = row_end;
  }
}

// The roots of C in memory, one below the other, with kPoison around every row; then other tiles.
class Sums {
 public:
  static constexpr float kPoison = -12345.5f;
  Sums(const GemmPlan& plan, int64_t rows)
      : ld(plan.n + 5),
        rows_(rows * plan.num_roots),
        columns_(plan.n),
        step_(rows * ld),
        values_(static_cast<size_t>((rows_ + 1) * ld), kPoison),
        spare_(static_cast<size_t>((rows * plan.num_spare + 1) * ld), kPoison) {}

  // From row i and column j on.
  SumTiles From(int64_t i, int64_t j) { return {At(i, j), ld, step_, spare_.data() + i * ld + j}; }

  // The sums of all roots; false if memory around them has changed.
  bool Take(std::vector<float>* sums) {
    sums->clear();
    for (int64_t i = 0; i < rows_; ++i) {
      sums->insert(sums->end(), At(i, 0), At(i, columns_));
      std::fill(At(i, 0), At(i, columns_), kPoison);
    }
    return std::count(values_.begin(), values_.end(), kPoison) ==
           static_cast<std::ptrdiff_t>(values_.size());
  }

  const int64_t ld;

 private:
  float* At(int64_t i, int64_t j) { return values_.data() + kBefore + i * ld + j; }

  static constexpr int64_t kBefore = 4;
  int64_t rows_;
  int64_t columns_;
  int64_t step_;
  std::vector<float> values_;
  std::vector<float> spare_;
};

// x times the weight, cut by `cut`. False if memory other than C has changed.
inline bool Product(const GemmPlan& plan, const Matrix& x, const Matrix& weight, const Cut& cut,
                    std::vector<float>* product, const TileScale& tile_scale = {},
                    const WeightScale& weight_scale = {}) {
  Stored stored_x(x, plan.dtype);
  Stored stored_weight(weight, plan.widens_weight ? DType::kInt8 : plan.dtype);
  Sums sums(plan, x.rows);
  Panels scratch(WeightBlockBytes(plan));
  Panels packed(cut.packed_before ? PackedWeightBytes(plan) : 0);
  const Weight w = {stored_weight.At(0, 0), stored_weight.ld, weight_scale,
                    cut.packed_before ? packed.data() : nullptr};
  if (cut.packed_before) {
    Panels pack_scratch(PackWeightScratchBytes(plan));
    PackWeight(plan, w.data, w.ld, pack_scratch.data(), packed.data());
  }
  struct Piece {
    int64_t first;
    int64_t rows;
    Panels panels;
  };
  std::vector<Piece> pieces;
  const auto multiply = [&] {
    for (int64_t strip = 0; strip < plan.num_strips(); ++strip) {
      std::vector<RowGroup> groups;
      for (Piece& piece : pieces) {
        TileScale scale = tile_scale;
        if (scale.token_scale != nullptr) scale.token_scale += piece.first;
        groups.push_back({piece.panels.data(), piece.rows,
                          sums.From(piece.first, plan.StripBegin(strip)), scale});
      }
      if (cut.in_passing && pieces.size() == 1 && AreFewRows(plan, groups[0].rows)) {
        MultiplyFewRows(plan, w, strip, groups[0], scratch.data());
        continue;
      }
      for (int64_t k_block = 0; k_block < plan.num_k_blocks(); ++k_block) {
        MultiplyBlock(plan, w, strip, k_block, groups.data(), groups.size(), scratch.data());
      }
    }
    pieces.clear();
  };
  int64_t first = 0;
  for (const int64_t end : Ends(x.rows, 1, cut)) {
    pieces.push_back({first, end - first, Panels(PackedRowsBytes(plan, end - first))});
    PackGroup(plan, stored_x, first, end - first, cut, pieces.back().panels.data());
    if (!cut.together) multiply();
    first = end;
  }
  if (cut.together) multiply();
  return sums.Take(product);
}

}  // namespace matrices
