// RunArithmetic() for bfloat16 on arm64 CPUs with FEAT_BF16. Built with this switched on
// (ops/collops/CMakeLists.txt).

#include <arm_neon.h>

#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"

namespace collops::kernels {
namespace {

// Four products in each of the 2 x 2 sums.
struct Bfmmla {
  static constexpr int kVectorBytes = 16;
  static constexpr size_t kSums = 24;
  static constexpr int64_t kOperationsPerStep = 2 * 4 * kVectorBytes / 4;
  static constexpr uint16_t kFactor = 0x3f81;  // 1 + 2^-7; for 1, gcc 12 makes a wrong instruction
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) {
    const auto factors = reinterpret_cast<bfloat16x8_t>(vdupq_n_u16(kFactor));
    return vbfmmlaq_f32(sum, factors, factors);
  }
};

}  // namespace

int64_t BfmmlaArithmetic(int64_t rounds) {
  return CountArithmetic<Bfmmla>(rounds);
}

}  // namespace collops::kernels
