// The product for AVX-512 (F, BW, DQ, VL). Built with these switched on
// (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_avx512.h"
#include "collops/kernels/gemm/gemm_loops.h"

namespace collops::kernels {
namespace {

// 24 sums, a row of three vectors and a broadcast unit: 28 of the 32 registers.
struct Avx512 : Avx512Vectors {
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 48;
  static constexpr int64_t kBlockUnits = 256;

  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) { return _mm512_fmadd_ps(a, b, sum); }
  static Bits WidenFloat16(Vector<uint16_t, 32> halves) {
    return reinterpret_cast<Bits>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(halves)));
  }
  static Vector<uint16_t, 32> NarrowFloat16(Bits units) {
    return reinterpret_cast<Vector<uint16_t, 32>>(
        _mm512_cvtps_ph(reinterpret_cast<__m512>(units), _MM_FROUND_TO_NEAREST_INT));
  }
};

// Pairs of int16: a sum of two products of int8 always fits into an int32.
struct Avx512Pairs : Avx512 {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    const __m512i products =
        _mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b));
    return reinterpret_cast<Sum>(_mm512_add_epi32(reinterpret_cast<__m512i>(sum), products));
  }
};

}  // namespace

const GemmKernels* Avx512GemmKernels(DType dtype) {
  if (dtype == DType::kInt8) return BytePairKernelsFor<Avx512Pairs>();
  return Float32KernelsFor<Avx512>(dtype);
}

}  // namespace collops::kernels
