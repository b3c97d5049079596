#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace collops::kernels {

// Whether Reduce() takes the pair: every numeric type for sum, prod, max, min; avg for floating
// types.
bool CanReduce(DType dtype, ReduceOp op);

// destination[i] = sources[0][i] op sources[1][i] op ... in that order, `count` elements of
// `dtype`. float16 and bfloat16 are reduced in float32 and rounded once, to nearest even, keeping
// subnormals; float32 and float64 in their own type; integers wrap modulo 2^bits. max and min are
// IEEE 754-2019 maximum and minimum (NaN wins, -0 < +0); avg is the sum divided by num_sources in
// the accumulator's type. The result depends on the values alone. Any alignment; the destination
// may be one of the sources (same address), but must not overlap them otherwise. `whole_bytes` is
// the size of the vector that these elements are a part of, when it is larger: the result of a
// large one (streaming.h) is stored past the caches. All of it is there for other threads and
// processes once it returns.
void Reduce(void* destination, const void* const* sources, int num_sources, int64_t count,
            DType dtype, ReduceOp op, int64_t whole_bytes = 0);

}  // namespace collops::kernels
