#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// RunningSum() of one (dtype, op), for the elements [begin, end).
using RunningSumKernel = void (*)(float* sums, const float* before, const void* const* sources,
                                  int num_sources, int64_t begin, int64_t end);

// The kernel of one instruction set for float16 and bfloat16; null for other pairs. All give the
// same bits. Avx2 and Avx512 exist on x86-64 only, and run where CanRun() of isa.h says so.
RunningSumKernel PortableRunningSumKernel(DType dtype, ReduceOp op);
RunningSumKernel Avx2RunningSumKernel(DType dtype, ReduceOp op);
RunningSumKernel Avx512RunningSumKernel(DType dtype, ReduceOp op);

}  // namespace collops::kernels
