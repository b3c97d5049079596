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

// One row of StoreSum(), `offset` floats into each partial. A divisor of 1 costs nothing.
using StoreSumKernel = void (*)(const float* const* partials, int num_partials, int64_t offset,
                                float divisor, const void* residual, int64_t columns, void* out);

// The kernels of one instruction set; each function is null where there is no such kernel. All sets
// give the same bits.
struct ReduceKernels {
  ReduceKernel (*reduce)(DType dtype, ReduceOp op);
  RunningSumKernel (*running_sum)(DType dtype, ReduceOp op);  // float16 and bfloat16
  StoreSumKernel (*store_sum)(DType dtype);                   // float32, float16 and bfloat16
};

// Avx2 and Avx512 exist on x86-64 only, and run where CanRun() of isa.h says so.
extern const ReduceKernels kPortableReduceKernels;
extern const ReduceKernels kAvx2ReduceKernels;
extern const ReduceKernels kAvx512ReduceKernels;

}  // namespace collops::kernels
