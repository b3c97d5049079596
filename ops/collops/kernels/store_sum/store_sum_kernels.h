#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// One row of StoreSum(), `offset` floats into each partial. A divisor of 1 costs nothing.
using StoreSumKernel = void (*)(const float* const* partials, int num_partials, int64_t offset,
                                float divisor, const void* residual, int64_t columns, void* out);

// The kernel of one instruction set for float32, bfloat16 and float16; null for other dtypes. All
// give the same bits. Avx2 and Avx512 exist on x86-64 only, and run where CanRun() of isa.h says
// so.
StoreSumKernel PortableStoreSumKernel(DType dtype);
StoreSumKernel Avx2StoreSumKernel(DType dtype);
StoreSumKernel Avx512StoreSumKernel(DType dtype);

}  // namespace collops::kernels
