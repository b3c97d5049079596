// The reductions in plain C++, written as loops that compilers turn into vector code.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/half.h"
#include "kernels/reduce_kernels.h"

namespace collops::kernels {
namespace {

// Elements reduced at a time: the accumulator lies on the stack and stays in the L1 cache. As no
// address given by the caller can point into it, no loop below depends on what overlaps what.
constexpr int kBlock = 1024;

// How an element type lies in memory, what it is added up in, and the way between the two.
template <typename T>
struct Plain {
  using Stored = T;
  using Accumulator = T;
  static T Widen(T value) { return value; }
  static T Narrow(T value) { return value; }
};

template <float (*kWiden)(uint16_t), uint16_t (*kNarrow)(float)>
struct Half {
  using Stored = uint16_t;
  using Accumulator = float;
  static float Widen(uint16_t value) { return kWiden(value); }
  static uint16_t Narrow(float value) { return kNarrow(value); }
};

using Float16 = Half<Float16ToFloat, FloatToFloat16>;
using BFloat16 = Half<BFloat16ToFloat, FloatToBFloat16>;

// For max and min, floating-point numbers become signed integers in the same order: as IEEE 754
// lays them out, a positive number's pattern grows with it, a negative one's shrinks. Every NaN
// becomes the integer that wins, which is a quiet NaN again on the way back.
template <typename Bits, Bits kInfinity, bool kMaximum>
struct Ordered {
  using Stored = Bits;
  using Accumulator = std::make_signed_t<Bits>;
  static constexpr int kSignBit = 8 * sizeof(Bits) - 1;
  static constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << kSignBit));
  static constexpr Accumulator kNan =
      kMaximum ? std::numeric_limits<Accumulator>::max() : std::numeric_limits<Accumulator>::min();

  // Turns a negative number's magnitude over; its own inverse.
  static Bits Flip(Bits bits) {
    const Bits negative = static_cast<Bits>(bits >> kSignBit);
    return static_cast<Bits>(bits ^ ((Bits{0} - negative) & kMagnitude));
  }
  static Accumulator Widen(Bits bits) {
    const bool is_nan = static_cast<Bits>(bits & kMagnitude) > kInfinity;
    return is_nan ? kNan : static_cast<Accumulator>(Flip(bits));
  }
  static Bits Narrow(Accumulator key) { return Flip(static_cast<Bits>(key)); }
};

template <bool kMaximum>
using OrderedFloat64 = Ordered<uint64_t, uint64_t{0x7ff} << 52, kMaximum>;
template <bool kMaximum>
using OrderedFloat32 = Ordered<uint32_t, 0x7f800000, kMaximum>;
template <bool kMaximum>
using OrderedFloat16 = Ordered<uint16_t, 0x7c00, kMaximum>;
template <bool kMaximum>
using OrderedBFloat16 = Ordered<uint16_t, 0x7f80, kMaximum>;

// Integers wrap: unsigned, and not below `unsigned`, or uint16 would be multiplied as a signed int.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

struct Sum {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <typename T>
  static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else {
      return a * b;
    }
  }
};

struct Max {
  template <typename T>
  static T Apply(T a, T b) {
    return a > b ? a : b;
  }
};

struct Min {
  template <typename T>
  static T Apply(T a, T b) {
    return a < b ? a : b;
  }
};

struct Avg : Sum {};

// Addresses may have any alignment, so elements are loaded and stored as bytes.
template <typename Element>
typename Element::Accumulator Load(const char* source, int i) {
  typename Element::Stored value;
  std::memcpy(&value, source + sizeof(value) * static_cast<size_t>(i), sizeof(value));
  return Element::Widen(value);
}

template <typename Element>
void Store(char* destination, int i, typename Element::Accumulator result) {
  const typename Element::Stored value = Element::Narrow(result);
  std::memcpy(destination + sizeof(value) * static_cast<size_t>(i), &value, sizeof(value));
}

// The passes over a block. Each is a function of its own, never inlined: gcc else merges the loop
// over the ranks with the loop over the elements and leaves both scalar.
template <typename Element, typename Accumulator = typename Element::Accumulator>
[[gnu::noinline]] void First(Accumulator* __restrict sum, const char* source, int count) {
  for (int i = 0; i < count; ++i) sum[i] = Load<Element>(source, i);
}

template <typename Element, typename Op, typename Accumulator = typename Element::Accumulator>
[[gnu::noinline]] void FirstTwo(Accumulator* __restrict sum, const char* first, const char* second,
                                int count) {
  for (int i = 0; i < count; ++i) {
    sum[i] = Op::Apply(Load<Element>(first, i), Load<Element>(second, i));
  }
}

template <typename Element, typename Op, typename Accumulator = typename Element::Accumulator>
[[gnu::noinline]] void Next(Accumulator* __restrict sum, const char* source, int count) {
  for (int i = 0; i < count; ++i) sum[i] = Op::Apply(sum[i], Load<Element>(source, i));
}

template <typename Element, typename Accumulator = typename Element::Accumulator>
[[gnu::noinline]] void Last(char* __restrict destination, const Accumulator* __restrict sum,
                            int count) {
  for (int i = 0; i < count; ++i) Store<Element>(destination, i, sum[i]);
}

template <typename Accumulator>
[[gnu::noinline]] void Divide(Accumulator* sum, int divisor, int count) {
  for (int i = 0; i < count; ++i) sum[i] /= static_cast<Accumulator>(divisor);
}

// At most kBlock elements, which begin `offset` bytes into every buffer.
template <typename Element, typename Op>
void ReduceBlock(char* destination, const void* const* sources, int num_sources, size_t offset,
                 int count) {
  typename Element::Accumulator sum[kBlock];
  const auto source = [=](int rank) { return static_cast<const char*>(sources[rank]) + offset; };
  if (num_sources == 1) {
    First<Element>(sum, source(0), count);
  } else {
    FirstTwo<Element, Op>(sum, source(0), source(1), count);
  }
  for (int rank = 2; rank < num_sources; ++rank) Next<Element, Op>(sum, source(rank), count);
  if constexpr (std::is_same_v<Op, Avg>) Divide(sum, num_sources, count);
  Last<Element>(destination + offset, sum, count);
}

template <typename Element, typename Op>
void ReduceBlocks(void* destination, const void* const* sources, int num_sources, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const size_t offset = static_cast<size_t>(begin) * sizeof(typename Element::Stored);
    const int length = static_cast<int>(std::min<int64_t>(kBlock, count - begin));
    ReduceBlock<Element, Op>(static_cast<char*>(destination), sources, num_sources, offset, length);
  }
}

constexpr int kNumOps = 5;

struct Row {
  DType dtype;
  ReduceKernel kernels[kNumOps];  // by ReduceOp
};

template <typename T>
constexpr Row IntegerRow(DType dtype) {
  using Element = Plain<T>;
  return {dtype,
          {ReduceBlocks<Element, Sum>, ReduceBlocks<Element, Prod>, ReduceBlocks<Element, Max>,
           ReduceBlocks<Element, Min>, nullptr}};
}

template <typename Element, template <bool> typename OrderedElement>
constexpr Row FloatingRow(DType dtype) {
  return {dtype,
          {ReduceBlocks<Element, Sum>, ReduceBlocks<Element, Prod>,
           ReduceBlocks<OrderedElement<true>, Max>, ReduceBlocks<OrderedElement<false>, Min>,
           ReduceBlocks<Element, Avg>}};
}

constexpr Row kRows[] = {
    FloatingRow<Plain<float>, OrderedFloat32>(DType::kFloat32),
    FloatingRow<BFloat16, OrderedBFloat16>(DType::kBFloat16),
    FloatingRow<Float16, OrderedFloat16>(DType::kFloat16),
    FloatingRow<Plain<double>, OrderedFloat64>(DType::kFloat64),
    IntegerRow<int8_t>(DType::kInt8),
    IntegerRow<uint8_t>(DType::kUInt8),
    IntegerRow<int16_t>(DType::kInt16),
    IntegerRow<uint16_t>(DType::kUInt16),
    IntegerRow<int32_t>(DType::kInt32),
    IntegerRow<uint32_t>(DType::kUInt32),
    IntegerRow<int64_t>(DType::kInt64),
    IntegerRow<uint64_t>(DType::kUInt64),
};

}  // namespace

ReduceKernel PortableReduceKernel(DType dtype, ReduceOp op) {
  const int index = static_cast<int>(op);
  if (index < 0 || index >= kNumOps) return nullptr;
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row.kernels[index];
  }
  return nullptr;
}

}  // namespace collops::kernels
