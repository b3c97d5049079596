#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "driver/stream.h"

namespace collops_sim {

// cublasStatus_t.
enum class Blas : int32_t {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
};

// Numbers of cublasLt.h, cublas_api.h and library_types.h.
enum BlasType : int32_t { kReal32 = 0, kReal16 = 2, kWhole8 = 3, kWhole32 = 10, kBrain16 = 14 };
constexpr int32_t kPlain = 0;
constexpr int32_t kCompute32 = 68;
constexpr int32_t kComputeWhole32 = 72;

// Column by column.
struct Layout {
  int32_t type;
  uint64_t rows;
  uint64_t columns;
  int64_t stride;  // from a column to the next

  size_t Bytes() const;
  size_t At(uint64_t row, uint64_t column) const {
    return static_cast<size_t>(column) * static_cast<size_t>(stride) + static_cast<size_t>(row);
  }
};

struct MatmulPlan {
  int32_t transposes_a = kPlain;
  int32_t transposes_b = kPlain;
  int32_t multiprocessors = 0;  // that it may use; 0: all
  bool is_whole = false;        // int8 into int32
};

struct Product {
  MatmulPlan plan;
  Layout a, b, c, d;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  void* d_data = nullptr;
  float alpha = 1;
};

size_t BlasSize(int32_t type);
// Why cuBLASLt has no algorithm for it, or nothing.
std::string CheckShapes(const Product& product);

// D = alpha * op(A) * op(B), in float32, rounded once; of int8 in int32, alpha being 1. `split`
// parts of the inner sum are added up at the end, as algorithms do it that split K, and before that
// rounded to D's type if `rounds`: other bits for other algorithms.
void Multiply(const Product& product, int split, bool rounds);

}  // namespace collops_sim
