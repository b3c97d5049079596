// The product of int8 for AVX-VNNI: pairs of int16. Built with AVX2 and AVX-VNNI switched on
// (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_avx2_vectors.h"
#include "collops/kernels/gemm/gemm_loops.h"

namespace collops::kernels {
namespace {

struct AvxVnni : Avx2Vectors {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    return reinterpret_cast<Sum>(_mm256_dpwssd_avx_epi32(reinterpret_cast<__m256i>(sum),
                                                         reinterpret_cast<__m256i>(a),
                                                         reinterpret_cast<__m256i>(b)));
  }
};

}  // namespace

const GemmKernels* AvxVnniGemmKernels() {
  return BytePairKernelsFor<AvxVnni>();
}

}  // namespace collops::kernels
