#pragma once

#include <cstdint>
#include <cstring>

#include "collops/kernels/half.h"
#include "collops/kernels/reduce/reduce_elements.h"
#include "collops/kernels/reduce/reduce_kernels.h"
#include "collops/kernels/reduce/sum_loops.h"
#include "collops/kernels/vector.h"

// The loops of WeightedSums(), QuantizeRows(), WidenInt8() and ScaleSums(). In an unnamed namespace
// for the reason given in vector.h. A Machine has vectors of kVectorBytes and converts float16.
namespace collops::kernels {
namespace {

// Calls visit(offset, column, stored_access, byte_access) for each vector of float32 of a row:
// where its elements begin in memory, its first column, and how its elements and as many bytes are
// accessed.
template <typename Machine, typename Element, typename Visit>
void ForEachVector(int64_t columns, const Visit& visit) {
  constexpr int64_t kLanes = Machine::kVectorBytes / 4;
  constexpr int64_t kElementBytes = sizeof(typename Element::Stored) / kLanes;
  int64_t column = 0;
  for (; columns - column >= kLanes; column += kLanes) {
    visit(column * kElementBytes, column, Whole{}, Whole{});
  }
  const auto left = static_cast<size_t>(columns - column);
  if (left == 0) return;
  visit(column * kElementBytes, column, Part{left * static_cast<size_t>(kElementBytes)},
        Part{left});
}

template <typename Machine, typename Element>
void WeightedRow(void* out, const void* const* rows, const float* weights, int num_rows,
                 int64_t columns) {
  ForEachVector<Machine, Element>(
      columns, [&](int64_t offset, int64_t /*column*/, auto stored_access, auto /*bytes*/) {
        SumVector<Machine> sum{};
        for (int i = 0; i < num_rows; ++i) {
          const char* const row = static_cast<const char*>(rows[i]) + offset;
          const SumVector<Machine> value =
              Element::Widen(stored_access.template Load<typename Element::Stored>(row));
          sum += weights == nullptr ? value : value * weights[i];
        }
        stored_access.Store(static_cast<char*>(out) + offset, Element::Narrow(sum));
      });
}

template <typename Machine>
WeightedSumKernel FindWeightedSumKernel(DType dtype) {
  if (dtype == DType::kFloat32) return &WeightedRow<Machine, AsFloat32<Machine>>;
  if (dtype == DType::kBFloat16) return &WeightedRow<Machine, AsBFloat16<Machine>>;
  if (dtype == DType::kFloat16) return &WeightedRow<Machine, AsFloat16<Machine>>;
  return nullptr;
}

// The largest magnitude of a row. Bit patterns are compared, in which every NaN is the largest.
template <typename Machine, typename Element>
float LargestMagnitude(const void* row, int64_t columns) {
  using Lane = VectorLane<Machine::kVectorBytes>;
  using Bits = typename Lane::Bits;
  Bits largest{};
  ForEachVector<Machine, Element>(columns, [&](int64_t offset, int64_t /*column*/,
                                               auto stored_access, auto /*bytes*/) {
    const char* const from = static_cast<const char*>(row) + offset;
    const Bits magnitude =
        Lane::ToBits(Element::Widen(stored_access.template Load<typename Element::Stored>(from))) &
        kFloatMagnitude;
    largest = Lane::IfLess(largest, magnitude, magnitude, largest);
  });
  uint32_t lanes[Machine::kVectorBytes / 4];
  std::memcpy(lanes, &largest, sizeof(lanes));
  uint32_t found = 0;
  for (const uint32_t lane : lanes) found = lane > found ? lane : found;
  return FloatFromBits(found);
}

template <typename Machine, typename Element>
float QuantizeRow(int8_t* out, const void* row, int64_t columns) {
  using Sum = SumVector<Machine>;
  using Integers = Vector<int32_t, Machine::kVectorBytes>;
  using Shorts = Vector<int16_t, Machine::kVectorBytes / 2>;
  using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
  constexpr float kMost = 127;
  // Whose last place is 1: adding it rounds to whole numbers, half to even.
  constexpr float kWhole = 0x1.8p23F;
  const float scale = LargestMagnitude<Machine, Element>(row, columns) / kMost;
  if (scale == 0) {
    if (columns > 0) std::memset(out, 0, static_cast<size_t>(columns));
    return scale;
  }
  ForEachVector<Machine, Element>(columns, [&](int64_t offset, int64_t column, auto stored_access,
                                               auto bytes_access) {
    const char* const from = static_cast<const char*>(row) + offset;
    Sum value = Element::Widen(stored_access.template Load<typename Element::Stored>(from)) / scale;
    const Sum most = Sum{} + kMost;
    value = value > most ? most : value;  // of a scale that is subnormal
    value = value < -most ? -most : value;
    value = value == value ? value : Sum{};
    value = (value + kWhole) - kWhole;
    // In two steps, which are an instruction each: of one step gcc 12 makes one per number.
    const auto shorts = __builtin_convertvector(__builtin_convertvector(value, Integers), Shorts);
    const Bytes bytes = __builtin_convertvector(shorts, Bytes);
    bytes_access.Store(reinterpret_cast<char*>(out) + column, bytes);
  });
  return scale;
}

template <typename Machine>
QuantizeKernel FindQuantizeKernel(DType dtype) {
  if (dtype == DType::kFloat32) return &QuantizeRow<Machine, AsFloat32<Machine>>;
  if (dtype == DType::kBFloat16) return &QuantizeRow<Machine, AsBFloat16<Machine>>;
  if (dtype == DType::kFloat16) return &QuantizeRow<Machine, AsFloat16<Machine>>;
  return nullptr;
}

template <typename Machine>
using Int32Vector = Vector<int32_t, Machine::kVectorBytes>;

template <typename Machine>
void WidenBytes(char* to, const char* from, int64_t count) {
  using Shorts = Vector<int16_t, Machine::kVectorBytes / 2>;
  using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
  constexpr int64_t kLanes = Machine::kVectorBytes / 4;
  for (int64_t i = 0; i < count; i += kLanes) {
    // In two steps, as in QuantizeRow().
    const auto shorts = __builtin_convertvector(Whole::Load<Bytes>(from + i), Shorts);
    Whole::Store(to + 4 * i, __builtin_convertvector(shorts, Int32Vector<Machine>));
  }
}

template <typename Machine>
void ScaleSumRange(char* out, const char* sums, float shift, const char* scales, bool has_one_scale,
                   int64_t count) {
  constexpr int64_t kLanes = Machine::kVectorBytes / 4;
  uint16_t first = 0;
  if (count > 0) std::memcpy(&first, scales, sizeof(first));
  const SumVector<Machine> one = Float16ToFloat(first) - SumVector<Machine>{};  // keeps -0
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto whole = Whole::Load<Int32Vector<Machine>>(sums + 4 * i);
    const auto sum = __builtin_convertvector(whole, SumVector<Machine>) + shift;
    const SumVector<Machine> scale =
        has_one_scale ? one
                      : Machine::WidenFloat16(Whole::Load<HalfVector<Machine>>(scales + 2 * i));
    Whole::Store(out + 2 * i, Machine::NarrowFloat16(sum * scale));
  }
}

}  // namespace
}  // namespace collops::kernels
