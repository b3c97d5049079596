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
enum BlasType : int32_t { kReal32 = 0, kReal16 = 2, kBrain16 = 14 };
enum Order : int32_t { kColumns = 0, kRows = 1 };
constexpr int32_t kPlain = 0;
constexpr int32_t kTransposed = 1;
constexpr int32_t kCompute32 = 68;
constexpr int32_t kComputeTf32 = 77;
constexpr int32_t kNoEpilogue = 1;
constexpr int32_t kBiasEpilogue = 4;

struct Layout {
  int32_t type;
  int32_t order = kColumns;
  uint64_t rows;
  uint64_t columns;
  int64_t stride;  // from a column to the next, or from a row to the next
  int32_t batches = 1;
  int64_t batch_stride = 0;

  size_t Bytes() const;
  size_t At(uint64_t row, uint64_t column) const {
    const uint64_t far = order == kColumns ? column : row;
    const uint64_t near = order == kColumns ? row : column;
    return static_cast<size_t>(far) * static_cast<size_t>(stride) + static_cast<size_t>(near);
  }
};

struct MatmulPlan {
  int32_t compute = kCompute32;
  int32_t scale = kReal32;
  int32_t transposes_a = kPlain;
  int32_t transposes_b = kPlain;
  int32_t epilogue = kNoEpilogue;
  const void* bias = nullptr;
  int32_t multiprocessors = 0;  // that it may use; 0: all
};

struct Product {
  MatmulPlan plan;
  Layout a, b, c, d;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* c_data = nullptr;
  void* d_data = nullptr;
  float alpha = 1;
  float beta = 0;
};

size_t BlasSize(int32_t type);
// Why cuBLASLt has no algorithm for it, or nothing. Alignments are `least` bytes at least.
std::string CheckShapes(const Product& product);

// D = alpha * op(A) * op(B) + beta * C, in float32, rounded once. `split` parts of the inner sum
// are added up at the end, as algorithms do it that split K, and before that rounded to D's type if
// `rounds`: other bits for other algorithms.
void Multiply(const Product& product, int split, bool rounds);

}  // namespace collops_sim
