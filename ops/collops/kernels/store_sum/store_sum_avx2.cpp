// StoreSum() and RunningSum() for AVX2 with F16C. Built with these switched on
// (ops/CMakeLists.txt).

#include "collops/kernels/intrinsics.h"
#include "collops/kernels/store_sum/running_sum_loops.h"
#include "collops/kernels/store_sum/store_sum_loops.h"

namespace collops::kernels {
namespace {

struct Avx2 {
  static constexpr int kVectorBytes = 32;
  using Sum = Vector<float, kVectorBytes>;
  using Halves = Vector<uint16_t, kVectorBytes / 2>;

  static Sum WidenFloat16(Halves halves) {
    return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
  }
  static Halves NarrowFloat16(Sum sum) {
    return reinterpret_cast<Halves>(_mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

StoreSumKernel Avx2StoreSumKernel(DType dtype) {
  return FindStoreSumKernel<Avx2>(dtype);
}
RunningSumKernel Avx2RunningSumKernel(DType dtype, ReduceOp op) {
  return FindRunningSumKernel<Avx2>(dtype, op);
}

}  // namespace collops::kernels
