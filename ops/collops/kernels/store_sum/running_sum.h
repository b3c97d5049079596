#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// A reduction of float16 or bfloat16 (`dtype`) that goes on somewhere else, in float32 as in
// Reduce(): sums[i] = (before[i] op sources[0][i]) op sources[1][i] ... in that order. Without
// `before` it begins with sources[0]. `op` is sum or prod; avg counts as sum. `sums` may be
// `before`. Any alignment of the sources. StoreSum() rounds the last sums as Reduce() does, so the
// bits are those of one Reduce() over all sources.
void RunningSum(float* sums, const float* before, const void* const* sources, int num_sources,
                int64_t count, DType dtype, ReduceOp op);

}  // namespace collops::kernels
