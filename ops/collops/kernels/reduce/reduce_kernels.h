#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// Reduce() of one (dtype, op), for the elements [begin, end). Only avg uses `divisor`. If `stream`,
// the result is stored past the caches, where the machine has such stores.
using ReduceKernel = void (*)(void* destination, const void* const* sources, int num_sources,
                              int divisor, int64_t begin, int64_t end, bool stream);

// The kernel of one instruction set for the pair; null if the pair is not reduced. All give the
// same bits. Avx2 and Avx512 exist on x86-64 only, and run where CanRun() of isa.h says so.
ReduceKernel PortableReduceKernel(DType dtype, ReduceOp op);
ReduceKernel Avx2ReduceKernel(DType dtype, ReduceOp op);
ReduceKernel Avx512ReduceKernel(DType dtype, ReduceOp op);

}  // namespace collops::kernels
