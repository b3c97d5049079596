#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "collops/kernels/half.h"
#include "collops/kernels/vector.h"

// The element types of a reduction, in vectors of kBytes. Each defines its type in memory
// (`Stored`), the vector of it (`Raw`), the accumulator (`Sum`), and conversions to (Widen) and
// from it (Narrow). If `kPrefetch` is true, the loops prefetch.
namespace collops::kernels {
namespace {

// Accumulated in its own type; integers are unsigned, so that they wrap.
template <typename T, int kBytes>
struct Plain {
  using Stored = T;
  using Raw = Vector<T, kBytes>;
  using Sum = Raw;
  static constexpr bool kPrefetch = false;
  static Sum Widen(Raw raw) { return raw; }
  static Raw Narrow(Sum sum) { return sum; }
};

// A vector of 16-bit numbers as two of float32; the element type defines their order.
template <int kBytes>
struct Pair {
  Vector<float, kBytes> first;
  Vector<float, kBytes> second;
};

// Numbers at even indices lie in the lower halves of 32-bit lanes, those at odd indices in the
// upper halves, so the conversions need no shuffle.
template <int kBytes>
struct BFloat16 {
  using Lane = VectorLane<kBytes>;
  using Stored = uint16_t;
  using Raw = typename Lane::Bits;
  using Sum = Pair<kBytes>;
  static constexpr bool kPrefetch = true;
  static Sum Widen(Raw raw) { return {Lane::ToFloat(raw << 16), Lane::ToFloat(raw & 0xffff0000u)}; }
  static Raw Narrow(Sum sum) {
    return BFloat16InUpperHalf<Lane>(sum.first) >> 16 |
           (BFloat16InUpperHalf<Lane>(sum.second) & 0xffff0000u);
  }
};

// As BFloat16, with integer operations; not used where the CPU converts float16.
template <int kBytes>
struct Float16 {
  using Lane = VectorLane<kBytes>;
  using Stored = uint16_t;
  using Raw = typename Lane::Bits;
  using Sum = Pair<kBytes>;
  static constexpr bool kPrefetch = true;
  static Sum Widen(Raw raw) {
    return {FloatFromFloat16<Lane>(raw & 0xffffu), FloatFromFloat16<Lane>(raw >> 16)};
  }
  static Raw Narrow(Sum sum) {
    return Float16FromFloat<Lane>(sum.first) | Float16FromFloat<Lane>(sum.second) << 16;
  }
};

// float32 and float64 for max and min: every NaN becomes the same quiet NaN.
template <typename T, typename Bits, bool kMaximum, int kBytes>
struct Extreme {
  using Stored = T;
  using Raw = Vector<T, kBytes>;
  using Sum = Raw;
  static constexpr bool kPrefetch = false;
  static constexpr Bits kNan = static_cast<Bits>(~Bits{0}) >> (kMaximum ? 1 : 0);
  static Sum Widen(Raw raw) { return raw; }
  static Raw Narrow(Sum sum) {
    return sum != sum ? reinterpret_cast<Raw>(Vector<Bits, kBytes>{} + kNan) : sum;
  }
};

// The 16-bit formats for max and min: as signed integers in the same order. In IEEE 754 a positive
// number's pattern grows with it, and a negative one's shrinks. Every NaN becomes the integer that
// wins, and a quiet NaN on the way back.
template <uint16_t kInfinity, bool kMaximum, int kBytes>
struct OrderedHalf {
  using Stored = uint16_t;
  using Raw = Vector<int16_t, kBytes>;
  using Sum = Raw;
  static constexpr bool kPrefetch = true;
  static constexpr int16_t kMagnitude = 0x7fff;
  static constexpr int16_t kNan = kMaximum ? kMagnitude : std::numeric_limits<int16_t>::min();

  // Inverts the magnitude of a negative number; its own inverse.
  static Raw Flip(Raw bits) { return bits ^ ((bits < 0) & kMagnitude); }
  static Sum Widen(Raw raw) {
    const auto is_nan = (raw & kMagnitude) > static_cast<int16_t>(kInfinity);
    return is_nan ? Raw{} + kNan : Flip(raw);
  }
  static Raw Narrow(Sum sum) { return Flip(sum); }
};

struct Add {
  template <typename V>
  static V Apply(V a, V b) {
    return a + b;
  }
};

struct Multiply {
  template <typename V>
  static V Apply(V a, V b) {
    return a * b;
  }
};

struct And {
  template <typename V>
  static V Apply(V a, V b) {
    return a & b;
  }
};

struct Or {
  template <typename V>
  static V Apply(V a, V b) {
    return a | b;
  }
};

struct Xor {
  template <typename V>
  static V Apply(V a, V b) {
    return a ^ b;
  }
};

struct Greater {
  template <typename V>
  static V Apply(V a, V b) {
    return a > b ? a : b;
  }
};

struct Less {
  template <typename V>
  static V Apply(V a, V b) {
    return a < b ? a : b;
  }
};

// IEEE 754's maximum: NaN wins. Equal numbers have the same bits, or are zeros, of which +0 wins.
struct Maximum {
  template <typename V, typename Bits = decltype(V{} == V{})>
  static V Apply(V a, V b) {
    const Bits a_stays = (a > b) | (a != a);
    const V larger = a_stays ? a : b;
    const Bits common = reinterpret_cast<Bits>(a) & reinterpret_cast<Bits>(b);
    return a == b ? reinterpret_cast<V>(common) : larger;
  }
};

// IEEE 754's minimum: -0 wins.
struct Minimum {
  template <typename V, typename Bits = decltype(V{} == V{})>
  static V Apply(V a, V b) {
    const Bits a_stays = (a < b) | (a != a);
    const V smaller = a_stays ? a : b;
    const Bits either = reinterpret_cast<Bits>(a) | reinterpret_cast<Bits>(b);
    return a == b ? reinterpret_cast<V>(either) : smaller;
  }
};

// The sum, which Divide() divides in its own type.
struct Mean : Add {
  template <typename V>
  static V Divide(V sum, int divisor) {
    using Number = std::remove_reference_t<decltype(sum[0])>;
    return sum / static_cast<Number>(divisor);
  }
  template <int kBytes>
  static Pair<kBytes> Divide(Pair<kBytes> sum, int divisor) {
    return {Divide(sum.first, divisor), Divide(sum.second, divisor)};
  }
};

// The same for integers T, truncated towards zero. The sum wraps, so it comes as unsigned numbers.
template <typename T>
struct IntegerMean : Add {
  template <typename V>
  static V Divide(V sum, int divisor) {
    T lanes[sizeof(V) / sizeof(T)];
    std::memcpy(lanes, &sum, sizeof(V));
    for (T& lane : lanes) lane = DivideOne(lane, divisor);
    std::memcpy(&sum, lanes, sizeof(V));
    return sum;
  }

  // Vectors divide floating-point numbers only. A quotient of numbers of n bits is a whole number
  // or at least 2^-n of itself away from one, so 24 and 53 bits are truncated to the same number.
  static T DivideOne(T value, int divisor) {
    if constexpr (sizeof(T) <= 2) {
      const float quotient = static_cast<float>(value) / static_cast<float>(divisor);
      return static_cast<T>(static_cast<int32_t>(quotient));
    } else if constexpr (sizeof(T) == 4) {
      return static_cast<T>(static_cast<double>(value) / static_cast<double>(divisor));
    } else {
      return value / static_cast<T>(divisor);
    }
  }
};

template <typename Op>
constexpr bool kDivides = std::is_same_v<Op, Mean>;
template <typename T>
constexpr bool kDivides<IntegerMean<T>> = true;

template <typename Op, typename V>
V Combine(V a, V b) {
  return Op::Apply(a, b);
}
template <typename Op, int kBytes>
Pair<kBytes> Combine(Pair<kBytes> a, Pair<kBytes> b) {
  return {Op::Apply(a.first, b.first), Op::Apply(a.second, b.second)};
}

}  // namespace
}  // namespace collops::kernels
