// The product of int8 for arm64 CPUs with FEAT_I8MM. Built with this switched on
// (ops/collops/CMakeLists.txt).

#include <arm_neon.h>

#include "collops/kernels/gemm/gemm_matrix_loops.h"

namespace collops::kernels {
namespace {

struct Smmla {
  using Element = int8_t;
  static BlockOfSums MultiplyAdd(Factor a, Factor b, BlockOfSums sums) {
    return reinterpret_cast<BlockOfSums>(vmmlaq_s32(reinterpret_cast<int32x4_t>(sums),
                                                    reinterpret_cast<int8x16_t>(a),
                                                    reinterpret_cast<int8x16_t>(b)));
  }
};

}  // namespace

const GemmKernels* SmmlaGemmKernels() {
  return &kInt8BlockKernels<Smmla>;
}

}  // namespace collops::kernels
