// The reductions for AVX2 with F16C. Built with these switched on (ops/collops/CMakeLists.txt).

#include "collops/kernels/reduce/reduce_loops.h"
#include "collops/kernels/reduce/row_loops.h"
#include "collops/kernels/reduce/sum_loops.h"

namespace collops::kernels {
namespace {

// float16 by F16C, which rounds to nearest even and keeps subnormals.
struct Float16Avx2 {
  using Stored = uint16_t;
  using Raw = Vector<uint32_t, 32>;
  using Sum = Pair<32>;
  static constexpr bool kPrefetch = true;

  static Sum Widen(Raw raw) {
    const __m256i halves = reinterpret_cast<__m256i>(raw);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  static Raw Narrow(Sum sum) {
    return reinterpret_cast<Raw>(_mm256_set_m128i(Half(sum.second), Half(sum.first)));
  }
  static __m128i Half(Vector<float, 32> value) {
    return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
  }
};

struct Avx2 {
  static constexpr int kVectorBytes = 32;
  static constexpr int kInFlight = 2;
  static constexpr bool kStreams = true;
  using Float16 = Float16Avx2;
  using Sum = Vector<float, kVectorBytes>;
  using Halves = Vector<uint16_t, kVectorBytes / 2>;

  template <typename V>
  static void Stream(char* destination, V value) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(destination), reinterpret_cast<__m256i>(value));
  }
  static void Fence() { _mm_sfence(); }

  static Sum WidenFloat16(Halves halves) {
    return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
  }
  static Halves NarrowFloat16(Sum sum) {
    return reinterpret_cast<Halves>(_mm256_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

const ReduceKernels kAvx2ReduceKernels = {&Kernels<Avx2>::Find,      &FindRunningSumKernel<Avx2>,
                                          &FindStoreSumKernel<Avx2>, &FindWeightedSumKernel<Avx2>,
                                          &FindQuantizeKernel<Avx2>, &WidenBytes<Avx2>,
                                          &ScaleSumRange<Avx2>};

}  // namespace collops::kernels
