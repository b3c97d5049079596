#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace collops::kernels {

// One (dtype, op): `destination` = the sources in rank order, as Reduce() promises.
using ReduceKernel = void (*)(void* destination, const void* const* sources, int num_sources,
                              int64_t count);

// The kernel in plain C++ for the pair; null when the pair is not reduced. Kernels for one
// instruction set have a look-up of their own, which Reduce() asks first; they must give the same
// bits.
ReduceKernel PortableReduceKernel(DType dtype, ReduceOp op);

}  // namespace collops::kernels
