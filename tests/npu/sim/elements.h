#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

// The 16-bit floating-point types, by their bits; conversion from float rounds to nearest even.
namespace collops_sim {

struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  explicit BFloat16(float value) {
    uint32_t word = 0;
    std::memcpy(&word, &value, sizeof(word));
    const bool is_nan = value != value;
    bits = static_cast<uint16_t>(is_nan ? 0x7FC0 : (word + 0x7FFF + (word >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    const uint32_t word = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
};

struct Float16 {
  uint16_t bits;

  Float16() = default;
  explicit Float16(float value) {
    const float size = std::fabs(value);
    // Of the number's first bit, or of a subnormal's.
    const int exponent = size < 0x1p-14F ? -14 : std::ilogb(std::min(size, 65536.0F));
    const float steps = std::nearbyint(std::ldexp(size, 10 - exponent));
    // The first bit of a normal number counts as one step of the exponent.
    const int number = static_cast<int>(steps) + (exponent + 14) * 1024;
    bits = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
    bits |= static_cast<uint16_t>(value != value ? 0x7E00 : size >= 65520 ? 0x7C00 : number);
  }
  explicit operator float() const {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
    if (exponent == 31) size = fraction == 0 ? HUGE_VALF : std::nanf("");
    return (bits & 0x8000) != 0 ? -size : size;
  }
};

}  // namespace collops_sim
