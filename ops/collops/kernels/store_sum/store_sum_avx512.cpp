// StoreSum() and RunningSum() for AVX-512 (F, BW, DQ, VL). Built with these switched on
// (ops/CMakeLists.txt). AVX512_BF16 is not among them: its conversion flushes subnormals.

#include "collops/kernels/intrinsics.h"
#include "collops/kernels/store_sum/running_sum_loops.h"
#include "collops/kernels/store_sum/store_sum_loops.h"

namespace collops::kernels {
namespace {

struct Avx512 {
  static constexpr int kVectorBytes = 64;
  using Sum = Vector<float, kVectorBytes>;
  using Halves = Vector<uint16_t, kVectorBytes / 2>;

  static Sum WidenFloat16(Halves halves) {
    return _mm512_cvtph_ps(reinterpret_cast<__m256i>(halves));
  }
  static Halves NarrowFloat16(Sum sum) {
    return reinterpret_cast<Halves>(_mm512_maskz_cvtps_ph(0xffff, sum, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

StoreSumKernel Avx512StoreSumKernel(DType dtype) {
  return FindStoreSumKernel<Avx512>(dtype);
}
RunningSumKernel Avx512RunningSumKernel(DType dtype, ReduceOp op) {
  return FindRunningSumKernel<Avx512>(dtype, op);
}

}  // namespace collops::kernels
