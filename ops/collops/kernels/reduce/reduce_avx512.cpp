// The reductions for AVX-512 (F, BW, DQ, VL). Built with these switched on (ops/CMakeLists.txt).
// AVX512_BF16 is not among them: its conversion flushes subnormals.

// gcc 12's header triggers gcc's own warnings about intentionally undefined values.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "collops/kernels/reduce/reduce_loops.h"

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

  template <typename V>
  static void Stream(char* destination, V value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(destination), reinterpret_cast<__m512i>(value));
  }
  static void Fence() { _mm_sfence(); }
};

}  // namespace

ReduceKernel Avx512ReduceKernel(DType dtype, ReduceOp op) {
  return Kernels<Avx512>::Find(dtype, op);
}

}  // namespace collops::kernels
