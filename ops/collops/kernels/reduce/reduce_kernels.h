#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// Reduce() of one (dtype, op), for the elements [begin, end). Only avg uses `divisor`. If `stream`,
// the result is stored past the caches, where the machine has such stores.
using ReduceKernel = void (*)(void* destination, const void* const* sources, int num_sources,
                              int divisor, int64_t begin, int64_t end, bool stream);

// RunningSum() of one (dtype, op), for the elements [begin, end).
using RunningSumKernel = void (*)(float* sums, const float* before, const void* const* sources,
                                  int num_sources, int64_t begin, int64_t end);

// One row of StoreSum(), `offset` floats into each partial. A divisor of 1 costs nothing, and no
// `tree` little.
using StoreSumKernel = void (*)(const float* const* partials, int num_partials, const uint8_t* tree,
                                int64_t offset, float divisor, const void* residual,
                                int64_t columns, void* out);

// One row of WeightedSums(); without `weights` they are 1.
using WeightedSumKernel = void (*)(void* out, const void* const* rows, const float* weights,
                                   int num_rows, int64_t columns);

// Quantises a row and returns its scale; see QuantizeRows().
using QuantizeKernel = float (*)(int8_t* out, const void* row, int64_t columns);

// WidenInt8(), and ScaleSums() with a scale for each sum, or one for all.
using WidenInt8Kernel = void (*)(char* to, const char* from, int64_t count);
using ScaleSumsKernel = void (*)(char* out, const char* sums, float shift, const char* scales,
                                 bool has_one_scale, int64_t count);

// The kernels of one instruction set; each function is null where there is no such kernel. All sets
// give the same bits.
struct ReduceKernels {
  ReduceKernel (*reduce)(DType dtype, ReduceOp op);
  RunningSumKernel (*running_sum)(DType dtype, ReduceOp op);  // float16 and bfloat16
  // float32, float16 and bfloat16
  StoreSumKernel (*store_sum)(DType dtype);
  WeightedSumKernel (*weighted_sum)(DType dtype);
  QuantizeKernel (*quantize)(DType dtype);
  WidenInt8Kernel widen_int8;
  ScaleSumsKernel scale_sums;
};

// Avx2 and Avx512 exist on x86-64 only, and run where CanRun() of isa.h says so.
extern const ReduceKernels kPortableReduceKernels;
extern const ReduceKernels kAvx2ReduceKernels;
extern const ReduceKernels kAvx512ReduceKernels;

// Those of ActiveIsa().
const ReduceKernels& ActiveReduceKernels();

}  // namespace collops::kernels
