#pragma once

#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/bodies/number.h"

// The steps of a computation that are no products: kernels/stream_compute.h. Numbers of float32,
// float16 or bfloat16; reckoned in float32, and rounded once. Also int8 that is copied.
namespace collops::cuda {

// A matrix, of which element (i, j) lies i * row_step + j * column_step elements behind the first.
// Addresses are multiples of the element's size.
struct MatrixArgs {
  void* data;
  int64_t row_step;
  int64_t column_step;
  DType dtype;
};

// c = a, of `rows` rows and `columns` columns.
struct ConvertArgs {
  static constexpr const char* kName = "collops_convert";
  MatrixArgs a;
  MatrixArgs c;
  int64_t rows;
  int64_t columns;
};

// c = a + b; with a row_step of 0 the one row of `b` is added to every row. `c` may be `a`.
struct AddArgs {
  static constexpr const char* kName = "collops_add";
  MatrixArgs a;
  MatrixArgs b;
  MatrixArgs c;
  int64_t rows;
  int64_t columns;
};

// c = (a + bias) * scale * token, each step rounded to float32; int32 `a` and `bias`, which are
// passed as float32, are added modulo 2^32. What has no data is left out. Steps of 0 repeat a row,
// a column or a number. `c` may lie where an `a` of its size does.
struct ScaleArgs {
  static constexpr const char* kName = "collops_scale";
  MatrixArgs a;
  MatrixArgs bias;
  MatrixArgs scale;
  MatrixArgs token;
  MatrixArgs c;
  int64_t rows;
  int64_t columns;
  int32_t is_whole;
};

// A thread takes so many numbers of a row: 16 bytes of a 16-bit type.
constexpr int kGroup = 8;

// `count` numbers of a row, from column `column` on, of a group of kMost.
template <class N, size_t kMost>
COLLOPS_DEVICE void LoadNumbers(const MatrixArgs& matrix, int64_t row, int64_t column, int count,
                                float (&values)[kMost]) {
  using Bits = typename N::Bits;
  constexpr int kBytes = sizeof(Bits);
  constexpr int kLanes = 16 / kBytes;
  constexpr auto kOfGroup = static_cast<int>(kMost);
  const int64_t begin = row * matrix.row_step + column * matrix.column_step;
  const char* const address = static_cast<const char*>(matrix.data) + begin * kBytes;
  if (kLanes <= kOfGroup && count == kOfGroup && matrix.column_step == 1 &&
      reinterpret_cast<uintptr_t>(address) % 16 == 0) {
    for (int wide = 0; wide < kOfGroup / kLanes; ++wide) {
      const Wide loaded = Load<Wide>(address + wide * 16);
      for (int i = 0; i < kLanes; ++i) {
        values[wide * kLanes + i] = N::Widen(Lane<Bits>(loaded, static_cast<uint32_t>(i)));
      }
    }
    return;
  }
  for (int i = 0; i < kOfGroup; ++i) {
    if (i < count) values[i] = N::Widen(Load<Bits>(address + i * matrix.column_step * kBytes));
  }
}

template <class N, size_t kMost>
COLLOPS_DEVICE void StoreNumbers(const MatrixArgs& matrix, int64_t row, int64_t column, int count,
                                 const float (&values)[kMost]) {
  using Bits = typename N::Bits;
  constexpr int kBytes = sizeof(Bits);
  constexpr int kLanes = 16 / kBytes;
  constexpr auto kOfGroup = static_cast<int>(kMost);
  const int64_t begin = row * matrix.row_step + column * matrix.column_step;
  char* const address = static_cast<char*>(matrix.data) + begin * kBytes;
  if (kLanes <= kOfGroup && count == kOfGroup && matrix.column_step == 1 &&
      reinterpret_cast<uintptr_t>(address) % 16 == 0) {
    for (int wide = 0; wide < kOfGroup / kLanes; ++wide) {
      Wide stored = {};
      for (int i = 0; i < kLanes; ++i) {
        PutLane<Bits>(&stored, static_cast<uint32_t>(i), N::Narrow(values[wide * kLanes + i]));
      }
      Store(address + wide * 16, stored);
    }
    return;
  }
  for (int i = 0; i < kOfGroup; ++i) {
    if (i < count) Store(address + i * matrix.column_step * kBytes, N::Narrow(values[i]));
  }
}

// Nothing is loaded and nothing stored of any other type.
template <size_t kMost>
COLLOPS_DEVICE void LoadAny(const MatrixArgs& matrix, int64_t row, int64_t column, int count,
                            float (&values)[kMost]) {
  if (matrix.dtype == DType::kFloat32) {
    LoadNumbers<Real<float>>(matrix, row, column, count, values);
  } else if (matrix.dtype == DType::kFloat16) {
    LoadNumbers<Float16>(matrix, row, column, count, values);
  } else if (matrix.dtype == DType::kBFloat16) {
    LoadNumbers<BFloat16>(matrix, row, column, count, values);
  } else if (matrix.dtype == DType::kInt8) {
    LoadNumbers<Int8>(matrix, row, column, count, values);
  }
}

template <size_t kMost>
COLLOPS_DEVICE void StoreAny(const MatrixArgs& matrix, int64_t row, int64_t column, int count,
                             const float (&values)[kMost]) {
  if (matrix.dtype == DType::kFloat32) {
    StoreNumbers<Real<float>>(matrix, row, column, count, values);
  } else if (matrix.dtype == DType::kFloat16) {
    StoreNumbers<Float16>(matrix, row, column, count, values);
  } else if (matrix.dtype == DType::kBFloat16) {
    StoreNumbers<BFloat16>(matrix, row, column, count, values);
  } else if (matrix.dtype == DType::kInt8) {
    StoreNumbers<Int8>(matrix, row, column, count, values);
  }
}

// step(row, column, count) for every group of the matrix, shared among the threads of a grid.
template <int kMost = kGroup, class Block, class Step>
COLLOPS_DEVICE void ForEachGroup(int64_t rows, int64_t columns, Block& block, Step step) {
  const int64_t per_row = (columns + kMost - 1) / kMost;
  block.Each([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t i = FirstOf(block, thread); i < rows * per_row; i += StepOf(block)) {
      const int64_t row = i / per_row;
      const int64_t column = (i - row * per_row) * kMost;
      const int64_t left = columns - column;
      step(row, column, left < kMost ? static_cast<int>(left) : kMost);
    }
  });
}

template <class Block>
COLLOPS_DEVICE void Convert(const ConvertArgs& args, Block& block) {
  ForEachGroup(args.rows, args.columns, block, [&](int64_t row, int64_t column, int count) {
    float values[kGroup] = {};
    LoadAny(args.a, row, column, count, values);
    StoreAny(args.c, row, column, count, values);
  });
}

template <class Block>
COLLOPS_DEVICE void Add(const AddArgs& args, Block& block) {
  ForEachGroup(args.rows, args.columns, block, [&](int64_t row, int64_t column, int count) {
    float values[kGroup] = {};
    float added[kGroup] = {};
    LoadAny(args.a, row, column, count, values);
    LoadAny(args.b, row, column, count, added);
    for (int i = 0; i < kGroup; ++i) values[i] = values[i] + added[i];
    StoreAny(args.c, row, column, count, values);
  });
}

template <class Block>
COLLOPS_DEVICE void Scale(const ScaleArgs& args, Block& block) {
  ForEachGroup(args.rows, args.columns, block, [&](int64_t row, int64_t column, int count) {
    float values[kGroup] = {};
    float biases[kGroup] = {};
    float scales[kGroup] = {};
    float tokens[kGroup] = {};
    LoadAny(args.a, row, column, count, values);
    if (args.bias.data != nullptr) LoadAny(args.bias, row, column, count, biases);
    if (args.scale.data != nullptr) LoadAny(args.scale, row, column, count, scales);
    if (args.token.data != nullptr) LoadAny(args.token, row, column, count, tokens);
    for (int i = 0; i < kGroup; ++i) {
      if (args.is_whole != 0) {
        const uint32_t sum = BitCast<uint32_t>(values[i]) + BitCast<uint32_t>(biases[i]);
        values[i] = static_cast<float>(BitCast<int32_t>(sum));
      } else if (args.bias.data != nullptr) {
        values[i] = values[i] + biases[i];
      }
      if (args.scale.data != nullptr) values[i] = values[i] * scales[i];
      if (args.token.data != nullptr) values[i] = values[i] * tokens[i];
    }
    StoreAny(args.c, row, column, count, values);
  });
}

}  // namespace collops::cuda
