#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// out[i, j] = ((partials[0][i, j] + partials[1][i, j]) + ...) / divisor + residual[j] in float32,
// rounded once to `dtype` (float32, bfloat16 or float16), to nearest even, preserving subnormals:
// the same bits on every instruction set. `residual` is a row of `columns` elements of `dtype`, or
// null. `ld_partial` is in floats, `ld_out` in elements. Any alignment of residual and out; float32
// `out` may be one of the partials, with the same rows. At least one partial.
void StoreSum(DType dtype, const float* const* partials, int num_partials, int64_t ld_partial,
              const void* residual, int64_t rows, int64_t columns, void* out, int64_t ld_out,
              float divisor = 1.0F);

}  // namespace collops::kernels
