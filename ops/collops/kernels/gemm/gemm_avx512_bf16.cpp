// The product of bfloat16 for AVX512_BF16: two neighbours in k at a time. Built with AVX512_BF16
// switched on (ops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_loops.h"
#include "collops/kernels/gemm/gemm_transpose_avx512.h"
#include "collops/kernels/intrinsics.h"

namespace collops::kernels {
namespace {

struct Avx512BFloat16 {
  static constexpr int kVectorBytes = 64;
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 48;
  static constexpr int64_t kBlockUnits = 256;
  using Bits = Vector<uint32_t, kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Broadcast(const uint32_t* unit) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*unit)));
  }
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static void Transpose(Bits (&rows)[16]) { Transpose16(rows); }
  static void StoreTransposed(const Bits (&rows)[8], uint32_t* out) { StoreTransposed8(rows, out); }
  static Bits ZeroExtend(Vector<uint16_t, 32> halves) {
    return reinterpret_cast<Bits>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves)));
  }
};

}  // namespace

const GemmKernels* Avx512BFloat16GemmKernels() {
  static constexpr GemmKernels kKernels =
      GemmKernelsFor<Avx512BFloat16, PairUnits<Avx512BFloat16>>(nullptr);
  return &kKernels;
}

}  // namespace collops::kernels
