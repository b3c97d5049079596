// A slow reference for kernels/reduce/reduce.h: one element at a time, by definition; and one
// element by the library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "check.h"
#include "collops/core/dtype.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/reduce/reduce.h"
#include "kernels/half_reference.h"

namespace reduce_reference {

using collops::ReduceOp;

// A number of type T: `Wide` is the type in which the library accumulates it.
template <typename T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static Wide Decode(Stored value) { return value; }
  static Stored Encode(Wide value) { return value; }
};

template <const half_reference::Format& kFormat>
struct Half {
  using Stored = uint16_t;
  using Wide = float;
  static Wide Decode(Stored value) {
    return static_cast<float>(half_reference::Decode(kFormat, value));
  }
  static Stored Encode(Wide value) { return half_reference::Encode(kFormat, value); }
};

// One step, rounded to its type; `volatile` keeps the compiler from fusing it with the next one.
template <typename T>
T SumOrProd(T a, T b, ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(op == ReduceOp::kProd ? x * y : x + y);
  } else {
    const volatile T result = op == ReduceOp::kProd ? a * b : a + b;
    return result;
  }
}

// IEEE 754-2019 maximum(a, b); minimum(a, b) is -maximum(-a, -b).
template <typename T>
T Maximum(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == 0 && b == 0) return std::signbit(a) && std::signbit(b) ? T(-0.0) : T(0.0);
  return a < b ? b : a;
}

template <typename T>
T Step(T a, T b, ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kBitAnd) return static_cast<T>(a & b);
    if (op == ReduceOp::kBitOr) return static_cast<T>(a | b);
    if (op == ReduceOp::kBitXor) return static_cast<T>(a ^ b);
  }
  if (op != ReduceOp::kMax && op != ReduceOp::kMin) return SumOrProd(a, b, op);
  if constexpr (std::is_integral_v<T>) {
    return (op == ReduceOp::kMax) == (a < b) ? b : a;
  } else {
    return op == ReduceOp::kMax ? Maximum(a, b) : -Maximum(-a, -b);
  }
}

template <typename Element>
typename Element::Stored Reference(const std::vector<typename Element::Stored>& terms,
                                   ReduceOp op) {
  using Wide = typename Element::Wide;
  Wide result = Element::Decode(terms[0]);
  for (size_t rank = 1; rank < terms.size(); ++rank) {
    result = Step<Wide>(result, Element::Decode(terms[rank]), op);
  }
  if (op == ReduceOp::kAvg) result = static_cast<Wide>(result / static_cast<Wide>(terms.size()));
  return Element::Encode(result);
}

template <typename Element>
bool Same(typename Element::Stored a, typename Element::Stored b) {
  if constexpr (!std::is_integral_v<typename Element::Wide>) {
    const bool a_is_nan = std::isnan(Element::Decode(a));
    if (a_is_nan || std::isnan(Element::Decode(b)))
      return a_is_nan && std::isnan(Element::Decode(b));
  }
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// One element by the library. Fails the test unless every instruction set gives the same result.
template <typename T>
T ReduceOne(const std::vector<T>& terms, collops::DType dtype, ReduceOp op) {
  std::vector<const void*> sources;
  for (const T& term : terms) sources.push_back(&term);
  T first{};
  for (const collops::kernels::Isa isa : collops::kernels::RunnableIsas()) {
    collops::kernels::ForceIsa(isa);
    T result{};
    collops::kernels::Reduce(&result, sources.data(), static_cast<int>(terms.size()), 1, dtype, op);
    if (isa == collops::kernels::Isa::kPortable) first = result;
    const bool both_nan = result != result && first != first;
    EXPECT_TRUE(both_nan || std::memcmp(&result, &first, sizeof(T)) == 0);
  }
  return first;
}

}  // namespace reduce_reference
