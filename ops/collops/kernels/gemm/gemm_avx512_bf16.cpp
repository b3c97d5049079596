// The product of bfloat16 for AVX512_BF16: two neighbours in k at a time. Built with AVX512_BF16
// switched on (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_avx512.h"
#include "collops/kernels/gemm/gemm_loops.h"

namespace collops::kernels {
namespace {

struct Avx512BFloat16 : Avx512Vectors {
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 48;
  static constexpr int64_t kBlockUnits = 256;

  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace

const GemmKernels* Avx512BFloat16GemmKernels() {
  static constexpr GemmKernels kKernels = OfFloats<Avx512BFloat16, NativePairs<Avx512BFloat16>>(
      GemmKernelsFor<Avx512BFloat16, PairUnits<Avx512BFloat16>>(nullptr));
  return &kKernels;
}

}  // namespace collops::kernels
