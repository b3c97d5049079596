#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/bodies/number.h"

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

}  // namespace collops::cuda
