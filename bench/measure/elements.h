// The elements of all ranks' inputs, and what a call must make of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "measure/point.h"

namespace bench {

// Rounds to the nearest, ties to even. Not for NaN, which no input has.
inline uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float FromBFloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Element `position` of a rank's x: a whole number below 31, another one on the next rank and at
// the next position. The sum over 8 ranks is exact in bfloat16.
inline float Input(int rank, int64_t position) {
  return static_cast<float>((position * 7 + position / 31 * 5 + rank * 11) % 31);
}

// Writes this rank's x.
void Fill(const Point& point, int rank, void* x);
// Makes every element a NaN.
void Poison(const Point& point, int64_t count, void* elements);
// Whether the output of `rank` is what the call must make of all ranks' x, bit for bit.
bool IsRight(const Point& point, int rank, const void* output);

}  // namespace bench
