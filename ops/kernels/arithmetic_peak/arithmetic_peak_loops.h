#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/vector.h"

// The loop of RunArithmetic(). In an unnamed namespace for the reason that vector.h gives. A
// Machine has vectors, how many of them are summed at a time, what one step does, and how many
// multiplications and additions that is.
namespace collops::kernels {
namespace {

// Indices known when this is compiled keep every sum in a register of its own.
template <typename Machine, size_t... kIndex>
float Arithmetic(int64_t rounds, std::index_sequence<kIndex...>) {
  using Sum = Vector<float, Machine::kVectorBytes>;
  // No two sums may start alike, or the compiler would compute one of them for both.
  Sum sums[] = {(Sum{} + static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) ((sums[kIndex] = Machine::Step(sums[kIndex])), ...);
  return (sums[kIndex][0] + ...);
}

template <typename Machine>
int64_t CountArithmetic(int64_t rounds) {
  // Nobody reads the sums, and the compiler must not know that.
  volatile float used = Arithmetic<Machine>(rounds, std::make_index_sequence<Machine::kSums>());
  static_cast<void>(used);
  return rounds * static_cast<int64_t>(Machine::kSums) * Machine::kOperationsPerStep;
}

}  // namespace
}  // namespace collops::kernels
