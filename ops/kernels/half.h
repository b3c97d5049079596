#pragma once

#include <cstdint>
#include <cstring>

namespace collops::kernels {

// Conversions between float32 and the two 16-bit formats, on their bit patterns. Exact when they
// widen; to nearest even when they narrow; subnormals are kept, a NaN stays a NaN and is quiet when
// narrowed. Free of branches, so loops over them become vector code; for the floating-point
// environment that a program starts with.

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

constexpr uint32_t kFloatMagnitude = 0x7fffffffu;
constexpr uint32_t kFloatInfinity = 0x7f800000u;

// 2^exponent as float32 bits.
constexpr uint32_t FloatPower(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 23;
}

// a < b ? yes : no, for a and b below 2^31. Written as arithmetic because gcc makes a branch of the
// operator where a value comes from floating-point code, and a scalar loop of the branch.
constexpr uint32_t IfLess(uint32_t a, uint32_t b, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - ((a - b) >> 31);
  return (yes & mask) | (no & ~mask);
}

inline float BFloat16ToFloat(uint16_t half) {
  return FloatFromBits(uint32_t{half} << 16);
}

inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = BitsFromFloat(value);
  const uint32_t upper = bits >> 16;
  // Just below half of the last place, one more when the last place is odd: ties go to even. A
  // carry into the exponent is right too, up to infinity.
  const uint32_t rounded = (bits + 0x7fffu + (upper & 1u)) >> 16;
  const uint32_t nan = upper | 0x0040u;
  return static_cast<uint16_t>(IfLess(kFloatInfinity, bits & kFloatMagnitude, nan, rounded));
}

inline float Float16ToFloat(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  // The exponent's bias grows from 15 to 127; infinity and NaN move on to float32's last exponent.
  const uint32_t normal = (magnitude << 13) + ((127u - 15) << 23);
  const uint32_t special = normal + ((127u - 15) << 23);
  // A subnormal is its mantissa in units of 2^-24: put below a leading one, which is then taken
  // off.
  const float subnormal =
      FloatFromBits((magnitude << 13) + FloatPower(-14)) - FloatFromBits(FloatPower(-14));
  uint32_t bits = IfLess(magnitude, 0x7c00u, normal, special);
  bits = IfLess(magnitude, 0x0400u, BitsFromFloat(subnormal), bits);
  return FloatFromBits(bits | sign);
}

inline uint16_t FloatToFloat16(float value) {
  const uint32_t bits = BitsFromFloat(value);
  const uint32_t magnitude = bits & kFloatMagnitude;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  // As for bfloat16, with 13 bits to drop and the bias back to 15. Values from 65520 on carry into
  // the exponent of infinity by themselves.
  const uint32_t normal =
      (magnitude - ((127u - 15) << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // The last place of 0.5 in float32 is 2^-24, float16's smallest step: the addition rounds.
  const uint32_t subnormal =
      BitsFromFloat(FloatFromBits(magnitude) + FloatFromBits(FloatPower(-1))) - FloatPower(-1);
  const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  uint32_t half = IfLess(magnitude, FloatPower(16), normal, 0x7c00u);
  half = IfLess(magnitude, FloatPower(-14), subnormal, half);
  half = IfLess(kFloatInfinity, magnitude, nan, half);
  return static_cast<uint16_t>(half | sign);
}

}  // namespace collops::kernels
