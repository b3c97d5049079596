// A slow reference for the 16-bit formats, by their definition and independent of the bit
// operations in kernels/half.h: a value is sign * mantissa * 2^exponent; rounding is to the nearest
// multiple of the last place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "collops/core/dtype.h"

namespace half_reference {

struct Format {
  int mantissa_bits;
  int exponent_bits;
};

constexpr Format kFloat16{10, 5};
constexpr Format kBFloat16{7, 8};

inline int Bias(Format format) {
  return (1 << (format.exponent_bits - 1)) - 1;
}

inline double Decode(Format format, uint16_t pattern) {
  const int mantissa = pattern % (1 << format.mantissa_bits);
  const int exponent = (pattern >> format.mantissa_bits) % (1 << format.exponent_bits);
  const double sign = pattern >= 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const int last_place = (exponent == 0 ? 1 : exponent) - Bias(format) - format.mantissa_bits;
  const int units = mantissa + (exponent == 0 ? 0 : 1 << format.mantissa_bits);
  return sign * std::ldexp(units, last_place);
}

// Any NaN becomes the quiet NaN with an empty payload.
inline uint16_t Encode(Format format, double value) {
  const int infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) {
    return static_cast<uint16_t>(infinity | 1 << (format.mantissa_bits - 1));
  }
  const int sign = std::signbit(value) ? 0x8000 : 0;
  int exponent = 1 - Bias(format);  // of the subnormals and the smallest normal numbers
  if (value != 0 && !std::isinf(value)) exponent = std::max(exponent, std::ilogb(value));
  // float64 is exact here: scaling by a power of two, and rounding to an integer, ties to even.
  const double units =
      std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  // The leading one counts as an exponent, so a carry gives the right result.
  const double steps = std::ldexp(exponent - (1 - Bias(format)), format.mantissa_bits) + units;
  return static_cast<uint16_t>(sign | (steps < infinity ? static_cast<int>(steps) : infinity));
}

// A number of float32, float16 or bfloat16 in memory; it is rounded once.
inline float Read(collops::DType dtype, const char* from) {
  float value;
  uint16_t pattern;
  if (dtype == collops::DType::kFloat32) {
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  std::memcpy(&pattern, from, sizeof(pattern));
  const Format format = dtype == collops::DType::kFloat16 ? kFloat16 : kBFloat16;
  return static_cast<float>(Decode(format, pattern));
}

inline void Write(collops::DType dtype, double value, void* to) {
  if (dtype == collops::DType::kFloat32) {
    const auto wide = static_cast<float>(value);
    std::memcpy(to, &wide, sizeof(wide));
    return;
  }
  const uint16_t pattern = Encode(dtype == collops::DType::kFloat16 ? kFloat16 : kBFloat16, value);
  std::memcpy(to, &pattern, sizeof(pattern));
}

}  // namespace half_reference
