// RunArithmetic() for AVX-512 and for AVX512_BF16. Built with these switched on
// (ops/collops/CMakeLists.txt).

#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"

namespace collops::kernels {
namespace {

struct Avx512 {
  static constexpr int kVectorBytes = 64;
  static constexpr size_t kSums = 24;
  static constexpr int64_t kOperationsPerStep = 2 * kVectorBytes / 4;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) {
    return _mm512_fmadd_ps(sum, _mm512_set1_ps(0.5F), _mm512_set1_ps(1.0F));
  }
};

// Two products of bfloat16 in each lane.
struct Pairs : Avx512 {
  static constexpr int64_t kOperationsPerStep = 2 * Avx512::kOperationsPerStep;
  static constexpr int kOnes = 0x3f803f80;  // two times 1.0

  static Sum Step(Sum sum) {
    const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(kOnes));
    return _mm512_dpbf16_ps(sum, ones, ones);
  }
};

}  // namespace

int64_t Avx512Arithmetic(int64_t rounds) {
  return CountArithmetic<Avx512>(rounds);
}

int64_t PairsAvx512Arithmetic(int64_t rounds) {
  return CountArithmetic<Pairs>(rounds);
}

}  // namespace collops::kernels
