// The product of int8 for AVX512_VNNI: four neighbours in k at a time. Built with AVX512_VNNI
// switched on (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_avx512.h"
#include "collops/kernels/gemm/gemm_loops.h"

namespace collops::kernels {
namespace {

// The instruction multiplies uint8 by int8, so rows are 128 more than they are; the form of it that
// does not saturate. With the sums of a row of 128, 31 of the 32 registers.
struct Avx512Vnni : Avx512Vectors {
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 48;
  static constexpr int64_t kBlockUnits = 256;
  static constexpr uint32_t kShift = 0x80808080u;

  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                     reinterpret_cast<__m512i>(a),
                                                     reinterpret_cast<__m512i>(b)));
  }
};

}  // namespace

const GemmKernels* Avx512VnniGemmKernels() {
  static constexpr GemmKernels kKernels =
      OfInt8<Avx512Vnni>(GemmKernelsFor<Avx512Vnni, ByteQuadUnits<Avx512Vnni>,
                                        ByteQuadUnits<Avx512Vnni, Avx512Vnni::kShift>>(nullptr));
  return &kKernels;
}

}  // namespace collops::kernels
