// RunArithmetic() for NEON.

#include <arm_neon.h>

#include "collops/kernels/arithmetic_peak/arithmetic_peak_kernels.h"
#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"

namespace collops::kernels {
namespace {

struct Neon {
  static constexpr int kVectorBytes = 16;
  static constexpr size_t kSums = 24;
  static constexpr int64_t kOperationsPerStep = 2 * kVectorBytes / 4;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) { return vfmaq_f32(vdupq_n_f32(1.0F), sum, vdupq_n_f32(0.5F)); }
};

}  // namespace

int64_t NeonArithmetic(int64_t rounds) {
  return CountArithmetic<Neon>(rounds);
}

}  // namespace collops::kernels
