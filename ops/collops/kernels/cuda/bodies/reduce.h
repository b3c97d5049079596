#pragma once

#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/rank_order.h"

namespace collops::cuda {

// output[i] = slice_0[i] op slice_1[i] op ..., `count` elements, in rank order. The slice of `rank`
// is `own`; those of the other ranks lie in `staging`, in rank order and `stride_bytes` apart, with
// no place for `rank`. `output` may be `own`, and overlaps nothing else. It is fastest where
// addresses and stride are the same modulo 16. Nothing happens for what kernels::CanReduce() does
// not take.
struct ReduceSlicesArgs {
  static constexpr const char* kName = "collops_reduce_slices";
  void* output;
  const void* own;
  const void* staging;
  int64_t stride_bytes;
  int64_t count;
  int32_t rank;
  int32_t rank_size;
  DType dtype;
  ReduceOp op;
};

// Where the slices of ReduceSlicesArgs begin.
class StagedSlices {
 public:
  COLLOPS_DEVICE explicit StagedSlices(const ReduceSlicesArgs& args) : args_(args) {}

  COLLOPS_DEVICE uint32_t size() const { return static_cast<uint32_t>(args_.rank_size); }
  COLLOPS_DEVICE const char* At(uint32_t rank) const {
    const auto own = static_cast<uint32_t>(args_.rank);
    if (rank == own) return static_cast<const char*>(args_.own);
    const int64_t place = rank < own ? rank : rank - 1;
    return static_cast<const char*>(args_.staging) + place * args_.stride_bytes;
  }

 private:
  const ReduceSlicesArgs& args_;
};

template <class Block>
COLLOPS_DEVICE void ReduceSlices(const ReduceSlicesArgs& args, Block& block) {
  ReduceInRankOrder(StagedSlices(args), args.output, args.count, args.dtype, args.op, block);
}

}  // namespace collops::cuda
