// The reductions for AVX-512 (F, BW, DQ, VL). Built with these switched on
// (ops/collops/CMakeLists.txt). AVX512_BF16 is not among them: its conversion flushes subnormals.

#include "collops/kernels/reduce/reduce_loops.h"
#include "collops/kernels/reduce/row_loops.h"
#include "collops/kernels/reduce/sum_loops.h"

namespace collops::kernels {
namespace {

// float16 by AVX-512's conversions, which round to nearest even and keep subnormals.
struct Float16Avx512 {
  using Stored = uint16_t;
  using Raw = Vector<uint32_t, 64>;
  using Sum = Pair<64>;
  static constexpr bool kPrefetch = true;

  static Sum Widen(Raw raw) {
    const __m512i halves = reinterpret_cast<__m512i>(raw);
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
  }
  static Raw Narrow(Sum sum) {
    const __m512i lower = _mm512_castsi256_si512(Half(sum.first));
    return reinterpret_cast<Raw>(_mm512_inserti64x4(lower, Half(sum.second), 1));
  }
  static __m256i Half(Vector<float, 64> value) {
    return _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT);
  }
};

struct Avx512 {
  static constexpr int kVectorBytes = 64;
  static constexpr int kInFlight = 2;
  static constexpr bool kStreams = true;
  using Float16 = Float16Avx512;
  using Sum = Vector<float, kVectorBytes>;
  using Halves = Vector<uint16_t, kVectorBytes / 2>;

  template <typename V>
  static void Stream(char* destination, V value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(destination), reinterpret_cast<__m512i>(value));
  }
  static void Fence() { _mm_sfence(); }

  static Sum WidenFloat16(Halves halves) {
    return _mm512_cvtph_ps(reinterpret_cast<__m256i>(halves));
  }
  static Halves NarrowFloat16(Sum sum) {
    return reinterpret_cast<Halves>(_mm512_maskz_cvtps_ph(0xffff, sum, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace

const ReduceKernels kAvx512ReduceKernels = {
    &Kernels<Avx512>::Find,         &FindRunningSumKernel<Avx512>, &FindStoreSumKernel<Avx512>,
    &FindWeightedSumKernel<Avx512>, &FindQuantizeKernel<Avx512>,   &WidenBytes<Avx512>,
    &ScaleSumRange<Avx512>};

}  // namespace collops::kernels
