#include "collops/kernels/arithmetic_peak/arithmetic_peak.h"

#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/isa.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace collops::kernels {
namespace {

// Vectors of 16 bytes, a multiplication and then an addition.
struct Portable {
  static constexpr int kVectorBytes = 16;
  static constexpr size_t kSums = 12;
  static constexpr int64_t kOperationsPerStep = 2 * kVectorBytes / 4;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) { return sum * 0.5F + 1.0F; }
};

#if defined(__aarch64__)

struct Neon {
  static constexpr int kVectorBytes = 16;
  static constexpr size_t kSums = 24;
  static constexpr int64_t kOperationsPerStep = 2 * kVectorBytes / 4;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) { return vfmaq_f32(vdupq_n_f32(1.0F), sum, vdupq_n_f32(0.5F)); }
};

#endif

}  // namespace

int64_t RunArithmetic(DType dtype, int64_t rounds) {
  if (!CanMultiply(dtype)) return 0;
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
      if (dtype == DType::kBFloat16) return AmxArithmetic(rounds);
      [[fallthrough]];
    case Isa::kAvx512:
      if (dtype == DType::kBFloat16 && HasAvx512BFloat16()) return PairsAvx512Arithmetic(rounds);
      return Avx512Arithmetic(rounds);
    case Isa::kAvx2:
      return Avx2Arithmetic(rounds);
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() == Isa::kNeon) {
    if (dtype == DType::kBFloat16 && HasBfmmla()) return BfmmlaArithmetic(rounds);
    return CountArithmetic<Neon>(rounds);
  }
#endif
  return CountArithmetic<Portable>(rounds);
}

}  // namespace collops::kernels
