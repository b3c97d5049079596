#pragma once

#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/arithmetic.h"
#include "collops/kernels/cuda/bodies/grid_reduction.h"

// Reductions of any type: which operation of arithmetic.h a pair of type and operation is.
namespace collops::cuda {

// Bytes of an element of a type that is reduced; else 1.
COLLOPS_DEVICE inline int64_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
    case DType::kUInt16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kUndefined:
    case DType::kBool:
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      return 1;
  }
  return 1;
}

template <class N, class Slices, class Block>
COLLOPS_DEVICE void ReduceReals(typename N::Bits infinity, const Slices& slices, char* output,
                                int64_t count, ReduceOp op, Block& block) {
  using Ordered = GreatestReal<typename N::Bits>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: {
      const int32_t divisor = op == ReduceOp::kAvg ? static_cast<int32_t>(slices.size()) : 0;
      return ReduceBy(Sum<N>{divisor}, slices, output, count, block);
    }
    case ReduceOp::kProd:
      return ReduceBy(Product<N>{}, slices, output, count, block);
    case ReduceOp::kMax:
    case ReduceOp::kMin: {
      const typename Ordered::Value mask = op == ReduceOp::kMin ? -1 : 0;
      return ReduceBy(Ordered{infinity, mask}, slices, output, count, block);
    }
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return;
  }
}

template <class Bits, class Slices, class Block>
COLLOPS_DEVICE void ReduceIntegers(bool is_signed, const Slices& slices, char* output,
                                   int64_t count, ReduceOp op, Block& block) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Bits));
  switch (op) {
    case ReduceOp::kSum:
      return ReduceBy(Sum<Modular<Bits>>{0}, slices, output, count, block);
    case ReduceOp::kProd:
      return ReduceBy(Product<Modular<Bits>>{}, slices, output, count, block);
    case ReduceOp::kMax:
    case ReduceOp::kMin: {
      const Greatest<Bits> greatest{Greatest<Bits>::Mask(op, is_signed)};
      return ReduceBy(greatest, slices, output, count, block);
    }
    case ReduceOp::kAvg: {
      // One by one: a vector's divisions are too much code for what is seldom used.
      const IntegerMean<Bits> mean{static_cast<int32_t>(slices.size()), is_signed};
      return ReduceSingles(mean, slices, output, Shares{0, 0, count}, block);
    }
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      // Bits have no type: words in vectors, and bytes.
      return ReduceBy(Bitwise<uint32_t>{op}, Bitwise<uint8_t>{op}, slices, output, count * kBytes,
                      block);
  }
}

// output[i] = slice_0[i] op slice_1[i] op ..., in rank order. Nothing happens for what
// kernels::CanReduce() does not take.
template <class Slices, class Block>
COLLOPS_DEVICE void ReduceInRankOrder(const Slices& slices, void* output, int64_t count,
                                      DType dtype, ReduceOp op, Block& block) {
  char* const to = static_cast<char*>(output);
  switch (dtype) {
    case DType::kFloat32:
      return ReduceReals<Real<float>>(kFloat32Infinity, slices, to, count, op, block);
    case DType::kFloat64:
      return ReduceReals<Real<double>>(kFloat64Infinity, slices, to, count, op, block);
    case DType::kFloat16:
      return ReduceReals<Float16>(kFloat16Infinity, slices, to, count, op, block);
    case DType::kBFloat16:
      return ReduceReals<BFloat16>(kBFloat16Infinity, slices, to, count, op, block);
    case DType::kInt8:
    case DType::kUInt8:
      return ReduceIntegers<uint8_t>(dtype == DType::kInt8, slices, to, count, op, block);
    case DType::kInt16:
    case DType::kUInt16:
      return ReduceIntegers<uint16_t>(dtype == DType::kInt16, slices, to, count, op, block);
    case DType::kInt32:
    case DType::kUInt32:
      return ReduceIntegers<uint32_t>(dtype == DType::kInt32, slices, to, count, op, block);
    case DType::kInt64:
    case DType::kUInt64:
      return ReduceIntegers<uint64_t>(dtype == DType::kInt64, slices, to, count, op, block);
    case DType::kUndefined:
    case DType::kBool:
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      return;
  }
}

}  // namespace collops::cuda
