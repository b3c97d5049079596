#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

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

}  // namespace collops::cuda
