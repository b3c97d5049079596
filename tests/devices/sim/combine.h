#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "collops/kernels/cuda/bodies/number.h"

// What the simulated NCCL and HCCL compute. The numbers are those of both.
namespace collops_sim {

enum Reduction { kSum, kProduct, kMax, kMin, kNumReductions };

// Integers modulo 2^bits: this is compiled with -fwrapv.
template <class T>
struct Whole {
  using Bits = T;
  static T Widen(T bits) { return bits; }
  template <class Wider>
  static T Narrow(Wider value) {
    return static_cast<T>(value);
  }
};

// A NaN wins, and -0 lies below +0.
template <class Value>
Value Extreme(bool is_max, Value a, Value b) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (a != a || b != b) return a != a ? a : b;
    if (a == b) return std::signbit(a) == is_max ? b : a;
  }
  return (a > b) == is_max ? a : b;
}

// left[i] = left[i] (reduction) right[i], rounded to the type each time; N as in number.h.
template <class N>
void Combine(int reduction, void* left, const void* right, size_t count) {
  using Bits = typename N::Bits;
  auto* const a = static_cast<Bits*>(left);
  const auto* const b = static_cast<const Bits*>(right);
  for (size_t i = 0; i < count; ++i) {
    const auto x = N::Widen(a[i]);
    const auto y = N::Widen(b[i]);
    if (reduction == kSum) {
      a[i] = N::Narrow(x + y);
    } else if (reduction == kProduct) {
      a[i] = N::Narrow(x * y);
    } else {
      a[i] = N::Narrow(Extreme(reduction == kMax, x, y));
    }
  }
}

}  // namespace collops_sim
