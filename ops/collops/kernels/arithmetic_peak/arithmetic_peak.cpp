#include "collops/kernels/arithmetic_peak/arithmetic_peak.h"

#include "collops/kernels/arithmetic_peak/arithmetic_peak_kernels.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/isa.h"

namespace collops::kernels {

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
    return NeonArithmetic(rounds);
  }
#endif
  return PortableArithmetic(rounds);
}

}  // namespace collops::kernels
