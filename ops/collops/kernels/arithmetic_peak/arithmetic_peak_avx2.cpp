// RunArithmetic() for AVX2 with FMA. Built with these switched on (ops/collops/CMakeLists.txt).

#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"

namespace collops::kernels {
namespace {

struct Avx2 {
  static constexpr int kVectorBytes = 32;
  static constexpr size_t kSums = 12;
  static constexpr int64_t kOperationsPerStep = 2 * kVectorBytes / 4;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) {
    return _mm256_fmadd_ps(sum, _mm256_set1_ps(0.5F), _mm256_set1_ps(1.0F));
  }
};

}  // namespace

int64_t Avx2Arithmetic(int64_t rounds) {
  return CountArithmetic<Avx2>(rounds);
}

}  // namespace collops::kernels
