#include "arithmetic.h"

#include <cmath>
#include <cstring>

#include "elements.h"

namespace collops_sim {
namespace {

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
    case kUInt8:
      return 1;
    case kInt16:
    case kUInt16:
    case kFloat16:
    case kBFloat16:
      return 2;
    case kInt32:
    case kUInt32:
    case kFloat32:
      return 4;
    case kInt64:
    case kUInt64:
    case kFloat64:
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
    case kInt64:
      return CombineAs<int64_t, uint64_t>(reduction, left, right, count);
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
