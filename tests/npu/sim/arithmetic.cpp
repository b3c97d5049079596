#include "arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace collops_sim {
namespace {

// bfloat16 by its bits, rounded to nearest even.
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

// The same for float16.
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

float Extreme(bool is_max, float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return std::signbit(a) == is_max ? b : a;
  return (a > b) == is_max ? a : b;
}

template <typename Element, typename Wide>
Element Pair(int reduction, Element left, Element right) {
  const Wide a = static_cast<Wide>(left);
  const Wide b = static_cast<Wide>(right);
  if (reduction == kSum) return static_cast<Element>(a + b);
  if (reduction == kProduct) return static_cast<Element>(a * b);
  if constexpr (static_cast<Wide>(0.5F) != 0) {
    return static_cast<Element>(Extreme(reduction == kMax, a, b));
  } else {
    // Signed again before they are compared.
    return (left > right) == (reduction == kMax) ? left : right;
  }
}

template <typename Element, typename Wide>
void CombineAs(int reduction, void* left, const void* right, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Element a;
    Element b;
    char* place = static_cast<char*>(left) + i * sizeof(Element);
    std::memcpy(&a, place, sizeof(a));
    std::memcpy(&b, static_cast<const char*>(right) + i * sizeof(Element), sizeof(b));
    const Element result = Pair<Element, Wide>(reduction, a, b);
    std::memcpy(place, &result, sizeof(result));
  }
}

}  // namespace

size_t SizeOf(int type) {
  switch (type) {
    case kInt8:
      return 1;
    case kInt16:
    case kFloat16:
    case kBFloat16:
      return 2;
    case kInt32:
    case kFloat32:
      return 4;
    case kInt64:
      return 8;
    default:
      return 0;
  }
}

void Combine(int type, int reduction, void* left, const void* right, size_t count) {
  switch (type) {
    case kInt8:
      return CombineAs<int8_t, uint32_t>(reduction, left, right, count);
    case kInt16:
      return CombineAs<int16_t, uint32_t>(reduction, left, right, count);
    case kInt32:
      return CombineAs<int32_t, uint32_t>(reduction, left, right, count);
    case kFloat16:
      return CombineAs<Float16, float>(reduction, left, right, count);
    case kBFloat16:
      return CombineAs<BFloat16, float>(reduction, left, right, count);
    case kFloat32:
      return CombineAs<float, float>(reduction, left, right, count);
    default:
      return;
  }
}

}  // namespace collops_sim
