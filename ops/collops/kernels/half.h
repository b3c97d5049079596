#pragma once

#include <cstdint>
#include <cstring>

namespace collops::kernels {

// Conversions between float32 and the two 16-bit formats, on their bit patterns. Widening is exact;
// narrowing rounds to nearest even; subnormals are preserved; a NaN stays a NaN and becomes quiet
// when narrowed. Without branches; for the default floating-point environment.
//
// The code serves single numbers and vectors: a Lane defines its Bits (uint32) and its Float,
// converts one to the other, and selects between two values.

constexpr uint32_t kFloatMagnitude = 0x7fffffffu;

// 2^exponent as float32 bits.
template <int kExponent>
constexpr uint32_t kFloatPower = static_cast<uint32_t>(kExponent + 127) << 23;

// What is added to float16's exponent (bias 15) to get float32's (bias 127).
constexpr uint32_t kRebias = (127u - 15) << 23;

// bfloat16 is the upper half of the result; the lower half has no meaning.
template <typename Lane, typename Bits = typename Lane::Bits>
Bits BFloat16InUpperHalf(typename Lane::Float value) {
  const Bits bits = Lane::ToBits(value);
  // Adds just below half of the last place, and one more if the last place is odd: ties go to even.
  // A carry into the exponent is also right, up to infinity.
  const Bits rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return Lane::IfNan(value, bits | 0x00400000u, rounded);
}

template <typename Lane, typename Bits = typename Lane::Bits>
typename Lane::Float FloatFromFloat16(Bits half) {
  const Bits magnitude = half & 0x7fffu;
  const Bits sign = (half & 0x8000u) << 16;
  // Infinity and NaN get float32's largest exponent.
  const Bits normal = (magnitude << 13) + kRebias;
  const Bits special = normal + kRebias;
  // A subnormal is its mantissa in units of 2^-24: it is put below a leading one, which is then
  // subtracted.
  const typename Lane::Float with_leading_one = Lane::ToFloat((magnitude << 13) + kFloatPower<-14>);
  const Bits subnormal = Lane::ToBits(with_leading_one - Lane::ToFloat(Bits{} + kFloatPower<-14>));
  Bits bits = Lane::IfLess(magnitude, Bits{} + 0x7c00u, normal, special);
  bits = Lane::IfLess(magnitude, Bits{} + 0x0400u, subnormal, bits);
  return Lane::ToFloat(bits | sign);
}

template <typename Lane, typename Bits = typename Lane::Bits>
Bits Float16FromFloat(typename Lane::Float value) {
  const Bits bits = Lane::ToBits(value);
  const Bits magnitude = bits & kFloatMagnitude;
  const Bits sign = (bits >> 16) & 0x8000u;
  // As for bfloat16, with 13 bits to drop. Values from 65520 on carry into the exponent of infinity
  // by themselves.
  const Bits normal = (magnitude - kRebias + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // The last place of 0.5 in float32 is 2^-24, float16's smallest step: the addition rounds.
  const typename Lane::Float rounded =
      Lane::ToFloat(magnitude) + Lane::ToFloat(Bits{} + kFloatPower<-1>);
  const Bits subnormal = Lane::ToBits(rounded) - kFloatPower<-1>;
  const Bits nan = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  Bits half = Lane::IfLess(magnitude, Bits{} + kFloatPower<16>, normal, Bits{} + 0x7c00u);
  half = Lane::IfLess(magnitude, Bits{} + kFloatPower<-14>, subnormal, half);
  return Lane::IfNan(value, nan, half) | sign;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t BitsFromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// One number at a time.
struct ScalarLane {
  using Bits = uint32_t;
  using Float = float;
  static Float ToFloat(Bits bits) { return FloatFromBits(bits); }
  static Bits ToBits(Float value) { return BitsFromFloat(value); }
  static Bits IfNan(Float value, Bits yes, Bits no) { return value != value ? yes : no; }
  // a < b ? yes : no, for a and b below 2^31.
  static Bits IfLess(Bits a, Bits b, Bits yes, Bits no) { return a < b ? yes : no; }
};

inline float BFloat16ToFloat(uint16_t half) {
  return ScalarLane::ToFloat(uint32_t{half} << 16);
}

inline uint16_t FloatToBFloat16(float value) {
  return static_cast<uint16_t>(BFloat16InUpperHalf<ScalarLane>(value) >> 16);
}

inline float Float16ToFloat(uint16_t half) {
  return FloatFromFloat16<ScalarLane>(uint32_t{half});
}

inline uint16_t FloatToFloat16(float value) {
  return static_cast<uint16_t>(Float16FromFloat<ScalarLane>(value));
}

}  // namespace collops::kernels
