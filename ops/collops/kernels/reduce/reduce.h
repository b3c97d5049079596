#pragma once

#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/reduce/leaf_tree.h"

namespace collops::kernels {

// Whether Reduce() takes the pair: every type of real numbers has sum, prod, max, min and avg,
// and integers have band, bor and bxor.
bool CanReduce(DType dtype, ReduceOp op);

// destination[i] = sources[0][i] op sources[1][i] op ... in that order, `count` elements of
// `dtype`. float16 and bfloat16 are reduced in float32 and rounded once, to nearest even,
// preserving subnormals; float32 and float64 in their own type; integers wrap modulo 2^bits. max
// and min are IEEE 754-2019 maximum and minimum (NaN wins, -0 < +0); avg is the sum divided in the
// accumulator's type, of integers truncated towards zero. The result depends only on the values.
// Any alignment; the destination may be one of the sources (same address), but must not overlap
// them otherwise. `whole_bytes`: the size of the vector of which these elements are a part, if
// larger: the result of a large vector (copy.h) is stored past the caches. It is visible to
// other threads and processes on return. `divisor`: of avg, if it is not num_sources, because a
// source is itself a sum.
void Reduce(void* destination, const void* const* sources, int num_sources, int64_t count,
            DType dtype, ReduceOp op, int64_t whole_bytes = 0, int divisor = 0);

// A reduction of float16 or bfloat16 (`dtype`) that goes on somewhere else, in float32 as in
// Reduce(): sums[i] = (before[i] op sources[0][i]) op sources[1][i] ... in that order. Without
// `before` it begins with sources[0]. `op` is sum or prod; avg counts as sum. `sums` may be
// `before`. Any alignment of the sources. StoreSum() rounds the last sums as Reduce() does, so the
// bits are those of one Reduce() over all sources.
void RunningSum(float* sums, const float* before, const void* const* sources, int num_sources,
                int64_t count, DType dtype, ReduceOp op);

// Numbers of float32, float16 or bfloat16 as float32. Any alignment of `from`.
void ToFloat32(DType dtype, const void* from, int64_t count, float* to);

// `count` int8 as int32, of which any number may be added up. A multiple of 16, any alignment.
void WidenInt8(const void* from, int64_t count, void* to);

// out[i] = float16((float32(sums[i]) + shift) * float32(scales[i modulo num_scales])), where each
// step is rounded to float32: the same bits on every instruction set. `sums` are int32, `scales`
// float16. `count` is a multiple of 16, num_scales 1 or another multiple. Any alignment.
void ScaleSums(const void* sums, int64_t count, float shift, const void* scales, int64_t num_scales,
               void* out);

// out[i, j] = ((partials[0][i, j] + partials[1][i, j]) + ...) / divisor + residual[j] in float32,
// rounded once to `dtype` (float32, bfloat16 or float16), to nearest even, preserving subnormals:
// the same bits on every instruction set. `residual` is a row of `columns` elements of `dtype`, or
// null. `ld_partial` is in floats, `ld_out` in elements. Any alignment of residual and out; float32
// `out` may be one of the partials, with the same rows. At least one partial. With a `tree` they
// are added by that.
void StoreSum(DType dtype, const float* const* partials, int num_partials, int64_t ld_partial,
              const void* residual, int64_t rows, int64_t columns, void* out, int64_t ld_out,
              float divisor = 1.0F, const SumTree* tree = nullptr);

// The type in which sums of elements of `dtype` are added up: float32 for float16 and bfloat16,
// else `dtype` itself.
DType SummedAs(DType dtype);

// Adds summands of `from`, `count` elements each, by the tree: sums[i] is its root i, of type `to`.
// They are added up in SummedAs(to), which is also SummedAs(from), and rounded once. Any alignment.
// A single sum may be one of its summands (same address); sums must not overlap them otherwise.
void SumByTree(DType from, const void* const* summands, const SumTree& tree, int64_t count,
               DType to, void* const* sums);

}  // namespace collops::kernels
