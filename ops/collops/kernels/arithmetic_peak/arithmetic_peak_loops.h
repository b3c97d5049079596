#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "collops/kernels/vector.h"

// RunArithmetic() of each instruction set, and their loop.
namespace collops::kernels {

// The AVX ones and Amx exist on x86-64 only, Bfmmla on arm64, and run where isa.h says so;
// PairsAvx512 uses AVX512_BF16, which multiplies pairs of bfloat16.
int64_t BfmmlaArithmetic(int64_t rounds);
int64_t Avx2Arithmetic(int64_t rounds);
int64_t Avx512Arithmetic(int64_t rounds);
int64_t PairsAvx512Arithmetic(int64_t rounds);
int64_t AmxArithmetic(int64_t rounds);

// The loop of RunArithmetic(). In an unnamed namespace for the reason given in vector.h. A Machine
// defines its vectors, how many of them are summed at a time, one step, and the operations per
// step.
namespace {

// Constant indices let the compiler keep every sum in a register.
template <typename Machine, size_t... kIndex>
float Arithmetic(int64_t rounds, std::index_sequence<kIndex...>) {
  using Sum = Vector<float, Machine::kVectorBytes>;
  // The sums start with different values, or the compiler would compute equal ones only once.
  Sum sums[] = {(Sum{} + static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) ((sums[kIndex] = Machine::Step(sums[kIndex])), ...);
  return (sums[kIndex][0] + ...);
}

template <typename Machine>
int64_t CountArithmetic(int64_t rounds) {
  // Uses the sums, so that the compiler does not remove the loop.
  volatile float used = Arithmetic<Machine>(rounds, std::make_index_sequence<Machine::kSums>());
  static_cast<void>(used);
  return rounds * static_cast<int64_t>(Machine::kSums) * Machine::kOperationsPerStep;
}

}  // namespace
}  // namespace collops::kernels
