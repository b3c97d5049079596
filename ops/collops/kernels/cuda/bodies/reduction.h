#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/bodies/number.h"

// Reductions of any type, by the operations of number.h.
//
// One operation over slices that a class names: size() ranks, and At(rank), where the slice of a
// rank begins. A grid takes the numbers 16 bytes a thread where all addresses allow it, and the
// rest one by one; each is loaded once, and combined in rank order.
namespace collops::cuda {

// Whole vectors of 16 bytes. kAhead loads are begun before the first of them is waited for; numbers
// of a byte, of which there are many in a vector, make too much code of that.
template <class Bits>
struct WideAccess {
  static constexpr uint32_t kLanes = 16 / sizeof(Bits);
  static constexpr uint32_t kAhead = sizeof(Bits) == 1 ? 1 : 8;
  static COLLOPS_DEVICE Wide LoadFrom(const char* address) { return LoadOnce(address); }
  static COLLOPS_DEVICE void StoreTo(char* address, Wide unit) { Store(address, unit); }
};

// One number, at any address.
template <class Bits>
struct SingleAccess {
  static constexpr uint32_t kLanes = 1;
  static constexpr uint32_t kAhead = sizeof(Bits) == 1 ? 1 : 8;

  static COLLOPS_DEVICE Wide LoadFrom(const char* address) {
    Bits bits = 0;
    if (IsAligned(address)) {
      bits = Load<Bits>(address);
    } else {
      for (size_t i = sizeof(Bits); i-- > 0;) {
        bits = static_cast<Bits>(uint64_t{bits} << 8 | Load<uint8_t>(address + i));
      }
    }
    Wide unit = {};
    PutLane(&unit, 0, bits);
    return unit;
  }
  static COLLOPS_DEVICE void StoreTo(char* address, Wide unit) {
    const Bits bits = Lane<Bits>(unit, 0);
    if (IsAligned(address)) return Store(address, bits);
    for (size_t i = 0; i < sizeof(Bits); ++i) {
      Store(address + i, static_cast<uint8_t>(bits >> 8 * i));
    }
  }

 private:
  static COLLOPS_DEVICE bool IsAligned(const char* address) {
    return reinterpret_cast<uintptr_t>(address) % sizeof(Bits) == 0;
  }
};

// The numbers of one access, `offset` bytes into every slice. All are loaded before any is stored,
// because the output may be a slice.
template <class Access, class Op, class Slices>
COLLOPS_DEVICE void ReduceUnit(const Op& op, const Slices& slices, char* output, int64_t offset) {
  using Bits = typename Op::Bits;
  constexpr uint32_t kLanes = Access::kLanes;
  constexpr uint32_t kAhead = Access::kAhead;
  const uint32_t size = slices.size();
  typename Op::Value values[kLanes] = {};
  COLLOPS_ROLLED
  for (uint32_t rank = 0; rank < size; rank += kAhead) {
    Wide units[kAhead] = {};
    for (uint32_t k = 0; k < kAhead; ++k) {
      if (k < size - rank) units[k] = Access::LoadFrom(slices.At(rank + k) + offset);
    }
    for (uint32_t k = 0; k < kAhead; ++k) {
      if (k >= size - rank) break;
      for (uint32_t i = 0; i < kLanes; ++i) {
        const auto value = op.Widen(Lane<Bits>(units[k], i));
        values[i] = rank + k == 0 ? value : op.Combine(values[i], value);
      }
    }
  }
  Wide result = {};
  for (uint32_t i = 0; i < kLanes; ++i) PutLane<Bits>(&result, i, op.Narrow(values[i]));
  Access::StoreTo(output + offset, result);
}

// How a grid shares a reduction: `wides` vectors of 16 bytes behind `head` elements, and the rest,
// which is all if some slice lies otherwise than the output.
struct Shares {
  int64_t head = 0;
  int64_t wides = 0;
  int64_t singles = 0;
};

template <class Slices>
COLLOPS_DEVICE Shares Share(const Slices& slices, const char* output, int64_t count,
                            int64_t element_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(output);
  const auto head_bytes = static_cast<int64_t>((0 - address) % 16);
  uintptr_t apart = head_bytes % element_bytes == 0 ? 0 : 1;
  for (uint32_t rank = 0; rank < slices.size(); ++rank) {
    apart |= (reinterpret_cast<uintptr_t>(slices.At(rank)) - address) % 16;
  }
  const int64_t head = head_bytes / element_bytes;
  if (apart != 0 || head >= count) return {0, 0, count};
  const int64_t per_wide = 16 / element_bytes;
  const int64_t wides = (count - head) / per_wide;
  return {head, wides, count - wides * per_wide};
}

// The singles of `shares`, and no vectors.
template <class Op, class Slices, class Block>
COLLOPS_DEVICE void ReduceSingles(const Op& op, const Slices& slices, char* output,
                                  const Shares& shares, Block& block) {
  constexpr int64_t kBytes = sizeof(typename Op::Bits);
  block.Each([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t i = FirstOf(block, thread); i < shares.singles; i += StepOf(block)) {
      const int64_t behind = i < shares.head ? 0 : shares.wides * 16;
      ReduceUnit<SingleAccess<typename Op::Bits>>(op, slices, output, i * kBytes + behind);
    }
  });
}

// `count` numbers of the operation `single`. `wide` does the same to whole vectors.
template <class WideOp, class SingleOp, class Slices, class Block>
COLLOPS_DEVICE void ReduceBy(const WideOp& wide, const SingleOp& single, const Slices& slices,
                             char* output, int64_t count, Block& block) {
  constexpr int64_t kBytes = sizeof(typename SingleOp::Bits);
  const Shares shares = Share(slices, output, count, kBytes);
  block.Each([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t i = FirstOf(block, thread); i < shares.wides; i += StepOf(block)) {
      const int64_t offset = shares.head * kBytes + i * 16;
      ReduceUnit<WideAccess<typename WideOp::Bits>>(wide, slices, output, offset);
    }
  });
  ReduceSingles(single, slices, output, shares, block);
}

template <class Op, class Slices, class Block>
COLLOPS_DEVICE void ReduceBy(const Op& op, const Slices& slices, char* output, int64_t count,
                             Block& block) {
  ReduceBy(op, op, slices, output, count, block);
}

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
