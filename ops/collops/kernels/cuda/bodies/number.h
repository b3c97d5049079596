#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"

#if !defined(__CUDA_ARCH__)
#include "collops/kernels/half.h"
#endif

// The numbers of a reduction: their bits in memory, and the value that is reckoned with. Bits are
// unsigned integers; Widen() makes the value, Narrow() the bits again.
namespace collops::cuda {

template <class To, class From>
COLLOPS_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

template <size_t kBytes>
using BitsOf = std::conditional_t<
    kBytes == 1, uint8_t,
    std::conditional_t<kBytes == 2, uint16_t, std::conditional_t<kBytes == 4, uint32_t, uint64_t>>>;

// The number at an index of 16 bytes.
template <class Bits>
COLLOPS_DEVICE Bits Lane(const Wide& wide, uint32_t index) {
  if constexpr (sizeof(Bits) == 8) {
    return wide.words[2 * index] | static_cast<uint64_t>(wide.words[2 * index + 1]) << 32;
  } else {
    constexpr uint32_t kPerWord = 4 / sizeof(Bits);
    const uint32_t shift = 8 * static_cast<uint32_t>(sizeof(Bits)) * (index % kPerWord);
    return static_cast<Bits>(wide.words[index / kPerWord] >> shift);
  }
}

// Puts a number where there are zeros yet.
template <class Bits>
COLLOPS_DEVICE void PutLane(Wide* wide, uint32_t index, Bits bits) {
  if constexpr (sizeof(Bits) == 8) {
    wide->words[2 * index] = static_cast<uint32_t>(bits);
    wide->words[2 * index + 1] = static_cast<uint32_t>(bits >> 32);
  } else {
    constexpr uint32_t kPerWord = 4 / sizeof(Bits);
    const uint32_t shift = 8 * static_cast<uint32_t>(sizeof(Bits)) * (index % kPerWord);
    wide->words[index / kPerWord] |= static_cast<uint32_t>(bits) << shift;
  }
}

// float32 and float64.
template <class T>
struct Real {
  using Bits = BitsOf<sizeof(T)>;
  using Value = T;
  static COLLOPS_DEVICE Value Widen(Bits bits) { return BitCast<T>(bits); }
  static COLLOPS_DEVICE Bits Narrow(Value value) { return BitCast<Bits>(value); }
};

// Whole numbers of 8 bits: every one is a float32.
struct Int8 {
  using Bits = uint8_t;
  using Value = float;
  static COLLOPS_DEVICE Value Widen(Bits bits) { return static_cast<float>(BitCast<int8_t>(bits)); }
  static COLLOPS_DEVICE Bits Narrow(Value value) {
    return BitCast<uint8_t>(static_cast<int8_t>(value));
  }
};

// The 16-bit formats become float32. Narrowing rounds to nearest even and keeps subnormals; a NaN
// stays a NaN. The device's instructions do the same as kernels/half.h.
struct Float16 {
  using Bits = uint16_t;
  using Value = float;
  static COLLOPS_DEVICE Value Widen(Bits bits) {
#if defined(__CUDA_ARCH__)
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    return kernels::Float16ToFloat(bits);
#endif
  }
  static COLLOPS_DEVICE Bits Narrow(Value value) {
#if defined(__CUDA_ARCH__)
    Bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return kernels::FloatToFloat16(value);
#endif
  }
};

struct BFloat16 {
  using Bits = uint16_t;
  using Value = float;
  static COLLOPS_DEVICE Value Widen(Bits bits) {
    return BitCast<float>(static_cast<uint32_t>(bits) << 16);
  }
  static COLLOPS_DEVICE Bits Narrow(Value value) {
#if defined(__CUDA_ARCH__)
    Bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    return kernels::FloatToBFloat16(value);
#endif
  }
};

// Integers modulo 2^bits. A value has 32 bits or more, of which Narrow() cuts off what overflowed.
template <class B>
struct Modular {
  using Bits = B;
  using Value = std::conditional_t<sizeof(B) == 8, uint64_t, uint32_t>;
  static COLLOPS_DEVICE Value Widen(Bits bits) { return bits; }
  static COLLOPS_DEVICE Bits Narrow(Value value) { return static_cast<Bits>(value); }
};

// The operations of a reduction by the rules of kernels/reduce/reduce.h, whose bits they have. Each
// has the Bits of its numbers in memory and the Value of one; Widen() makes a value, Combine()
// joins two, Narrow() makes the bits of the result. What does not change the loop (the divisor, the
// sign, max or min) is a field and not another type: every type is compiled once more.
//
// The sum; divided by the number of ranks, if `divisor` is not 0.
template <class N>
struct Sum {
  using Bits = typename N::Bits;
  using Value = typename N::Value;
  int32_t divisor;
  COLLOPS_DEVICE Value Widen(Bits bits) const { return N::Widen(bits); }
  COLLOPS_DEVICE Value Combine(Value a, Value b) const { return a + b; }
  COLLOPS_DEVICE Bits Narrow(Value sum) const {
    if constexpr (std::is_floating_point_v<Value>) {
      if (divisor != 0) sum = sum / static_cast<Value>(divisor);
    }
    return N::Narrow(sum);
  }
};

template <class N>
struct Product {
  using Bits = typename N::Bits;
  using Value = typename N::Value;
  COLLOPS_DEVICE Value Widen(Bits bits) const { return N::Widen(bits); }
  COLLOPS_DEVICE Value Combine(Value a, Value b) const { return a * b; }
  COLLOPS_DEVICE Bits Narrow(Value value) const { return N::Narrow(value); }
};

// avg of integers: the sum modulo 2^bits, divided, and truncated towards zero.
template <class B>
struct IntegerMean {
  using Bits = B;
  using Value = uint64_t;
  using Signed = std::make_signed_t<Bits>;
  int32_t divisor;
  bool is_signed;
  COLLOPS_DEVICE Value Widen(Bits bits) const { return bits; }
  COLLOPS_DEVICE Value Combine(Value a, Value b) const { return a + b; }
  COLLOPS_DEVICE Bits Narrow(Value value) const {
    const auto sum = static_cast<Bits>(value);
    if (is_signed) {
      return static_cast<Bits>(static_cast<int64_t>(static_cast<Signed>(sum)) / divisor);
    }
    return static_cast<Bits>(uint64_t{sum} / static_cast<uint64_t>(divisor));
  }
};

// The largest signed integer of those that `mask` makes of the numbers by exclusive or: the sign
// bit makes unsigned numbers signed ones in the same order, all bits turn the order round.
template <class B>
struct Greatest {
  using Bits = B;
  using Signed = std::make_signed_t<Bits>;
  using Value = std::conditional_t<sizeof(B) == 8, int64_t, int32_t>;
  Bits mask;
  COLLOPS_DEVICE Value Widen(Bits bits) const {
    return static_cast<Signed>(static_cast<Bits>(bits ^ mask));
  }
  COLLOPS_DEVICE Value Combine(Value a, Value b) const { return a > b ? a : b; }
  COLLOPS_DEVICE Bits Narrow(Value value) const {
    return static_cast<Bits>(static_cast<Bits>(value) ^ mask);
  }

  static COLLOPS_DEVICE Bits Mask(ReduceOp op, bool is_signed) {
    const Bits sign = is_signed ? 0 : static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    return op == ReduceOp::kMin ? static_cast<Bits>(~sign) : sign;
  }
};

// IEEE 754's maximum and minimum of floating-point numbers, as signed integers in that order: a
// positive number's pattern grows with it, and a negative one's shrinks, so -0 lies below +0. Every
// NaN becomes the integer that wins, and so one quiet NaN on the way back.
template <class B>
struct GreatestReal {
  using Bits = B;
  using Signed = std::make_signed_t<Bits>;
  using Value = std::conditional_t<sizeof(B) == 8, int64_t, int32_t>;
  static constexpr Signed kMagnitude = std::numeric_limits<Signed>::max();
  Bits infinity;  // the type's
  Value mask;     // 0, or all bits for the minimum

  COLLOPS_DEVICE Value Widen(Bits bits) const {
    const bool is_nan = (bits & static_cast<Bits>(kMagnitude)) > infinity;
    return is_nan ? kMagnitude : Flip(static_cast<Signed>(bits)) ^ mask;
  }
  COLLOPS_DEVICE Value Combine(Value a, Value b) const { return a > b ? a : b; }
  COLLOPS_DEVICE Bits Narrow(Value value) const { return static_cast<Bits>(Flip(value ^ mask)); }

 private:
  // Inverts the magnitude of a negative number; its own inverse.
  static COLLOPS_DEVICE Value Flip(Value value) { return value < 0 ? value ^ kMagnitude : value; }
};

constexpr uint16_t kFloat16Infinity = 0x7c00;
constexpr uint16_t kBFloat16Infinity = 0x7f80;
constexpr uint32_t kFloat32Infinity = 0x7f800000;
constexpr uint64_t kFloat64Infinity = 0x7ff0000000000000;

// The bitwise operations.
template <class B>
struct Bitwise {
  using Bits = B;
  using Value = uint32_t;
  ReduceOp op;
  COLLOPS_DEVICE Value Widen(Bits bits) const { return bits; }
  COLLOPS_DEVICE Value Combine(Value a, Value b) const {
    return op == ReduceOp::kBitAnd ? a & b : op == ReduceOp::kBitOr ? a | b : a ^ b;
  }
  COLLOPS_DEVICE Bits Narrow(Value value) const { return static_cast<Bits>(value); }
};

}  // namespace collops::cuda
