// The product of bfloat16 for arm64 CPUs with FEAT_BF16. Built with this switched on
// (ops/collops/CMakeLists.txt).

#include <arm_neon.h>

#include "collops/kernels/gemm/gemm_matrix_loops.h"

namespace collops::kernels {
namespace {

struct Bfmmla {
  using Element = uint16_t;
  static BlockOfSums MultiplyAdd(Factor a, Factor b, BlockOfSums sums) {
    return vbfmmlaq_f32(sums, reinterpret_cast<bfloat16x8_t>(a), reinterpret_cast<bfloat16x8_t>(b));
  }
};

}  // namespace

const GemmKernels* BfmmlaGemmKernels() {
  return &kBlockKernels<Bfmmla>;
}

}  // namespace collops::kernels
