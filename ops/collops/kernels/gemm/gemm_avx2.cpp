// The product for AVX2 with FMA and F16C. Built with these switched on
// (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_avx2_vectors.h"
#include "collops/kernels/gemm/gemm_loops.h"

namespace collops::kernels {
namespace {

struct Avx2 : Avx2Vectors {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) { return _mm256_fmadd_ps(a, b, sum); }
  static Bits WidenFloat16(Vector<uint16_t, 16> halves) {
    return reinterpret_cast<Bits>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(halves)));
  }
  static Vector<uint16_t, 16> NarrowFloat16(Bits units) {
    return reinterpret_cast<Vector<uint16_t, 16>>(
        _mm256_cvtps_ph(reinterpret_cast<__m256>(units), _MM_FROUND_TO_NEAREST_INT));
  }
};

// Pairs of int16: a sum of two products of int8 always fits into an int32.
struct Avx2Pairs : Avx2Vectors {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    const __m256i products =
        _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
    return reinterpret_cast<Sum>(_mm256_add_epi32(reinterpret_cast<__m256i>(sum), products));
  }
};

}  // namespace

const GemmKernels* Avx2GemmKernels(DType dtype) {
  if (dtype == DType::kInt8) return BytePairKernelsFor<Avx2Pairs>();
  return Float32KernelsFor<Avx2>(dtype);
}

}  // namespace collops::kernels
