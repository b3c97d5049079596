// The product of int8 for arm64 CPUs with FEAT_DotProd: four neighbours in k at a time. Built with
// this switched on (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm_loops.h"
#include "collops/kernels/gemm/gemm_neon_vectors.h"

namespace collops::kernels {
namespace {

struct Sdot : NeonVectors {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    return reinterpret_cast<Sum>(vdotq_s32(reinterpret_cast<int32x4_t>(sum),
                                           reinterpret_cast<int8x16_t>(b),
                                           reinterpret_cast<int8x16_t>(a)));
  }
};

template <size_t kRow>
struct RowUnit<Sdot, kRow> : NeonRowUnit<kRow> {};

}  // namespace

const GemmKernels* SdotGemmKernels() {
  static constexpr GemmKernels kKernels =
      OfInt8<Sdot>(GemmKernelsFor<Sdot, ByteQuadUnits<Sdot>>(nullptr));
  return &kKernels;
}

}  // namespace collops::kernels
