#pragma once

#include <cstdint>

#include "collops/kernels/gemm/gemm_pack.h"
#include "collops/kernels/vector.h"

// What the products for AVX-512, AVX512_BF16 and AMX have in common. In an unnamed namespace for
// the reason given in vector.h.
namespace collops::kernels {
namespace {

// Transposes 4 x 4 units in each of the four lanes of 16 bytes: pairs of rows, then pairs of pairs.
// rows[c] becomes, in lane l, column 4l + c.
inline void TransposeLanes(__m512i* rows) {
  const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i b = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i c = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i d = _mm512_unpackhi_epi32(rows[2], rows[3]);
  rows[0] = _mm512_unpacklo_epi64(a, c);
  rows[1] = _mm512_unpackhi_epi64(a, c);
  rows[2] = _mm512_unpacklo_epi64(b, d);
  rows[3] = _mm512_unpackhi_epi64(b, d);
}

// 16 x 16 units: within the lanes, then the lanes themselves in two steps.
inline void Transpose16(Vector<uint32_t, 64> (&rows)[16]) {
  __m512i a[16];
  __m512i b[16];
  for (int i = 0; i < 16; ++i) a[i] = reinterpret_cast<__m512i>(rows[i]);
  for (int i = 0; i < 16; i += 4) TransposeLanes(a + i);
  for (int c = 0; c < 4; ++c) {
    b[c] = _mm512_shuffle_i32x4(a[c], a[c + 4], 0x88);
    b[c + 4] = _mm512_shuffle_i32x4(a[c], a[c + 4], 0xdd);
    b[c + 8] = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0x88);
    b[c + 12] = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0xdd);
  }
  for (int c = 0; c < 4; ++c) {
    a[c] = _mm512_shuffle_i32x4(b[c], b[c + 8], 0x88);
    a[c + 8] = _mm512_shuffle_i32x4(b[c], b[c + 8], 0xdd);
    a[c + 4] = _mm512_shuffle_i32x4(b[c + 4], b[c + 12], 0x88);
    a[c + 12] = _mm512_shuffle_i32x4(b[c + 4], b[c + 12], 0xdd);
  }
  for (int i = 0; i < 16; ++i) rows[i] = reinterpret_cast<Vector<uint32_t, 64>>(a[i]);
}

// 8 rows of 16 units to 16 rows of 8.
inline void StoreTransposed8(const Vector<uint32_t, 64> (&rows)[8], uint32_t* out) {
  __m512i a[8];
  for (int i = 0; i < 8; ++i) a[i] = reinterpret_cast<__m512i>(rows[i]);
  TransposeLanes(a);
  TransposeLanes(a + 4);
  const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i upper = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const auto store = [out](int column, __m256i units) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8 * column), units);
  };
  for (int c = 0; c < 4; ++c) {
    const __m512i first = _mm512_permutex2var_epi64(a[c], lower, a[c + 4]);
    const __m512i second = _mm512_permutex2var_epi64(a[c], upper, a[c + 4]);
    store(c, _mm512_castsi512_si256(first));
    store(c + 4, _mm512_extracti64x4_epi64(first, 1));
    store(c + 8, _mm512_castsi512_si256(second));
    store(c + 12, _mm512_extracti64x4_epi64(second, 1));
  }
}

// A Machine of gemm_pack.h and gemm_loops.h without its tiles and its MultiplyAdd().
struct Avx512Vectors {
  static constexpr int kVectorBytes = 64;
  using Bits = Vector<uint32_t, kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Broadcast(const uint32_t* unit) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*unit)));
  }
  static void Transpose(Bits (&rows)[16]) { Transpose16(rows); }
  static void StoreTransposed(const Bits (&rows)[8], uint32_t* out) { StoreTransposed8(rows, out); }
  static Bits ZeroExtend(Vector<uint16_t, 32> halves) {
    return reinterpret_cast<Bits>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves)));
  }
};

#if defined(__AVX512BF16__)
// A PairRounding by the processor's own conversion. It takes subnormal numbers as zero, which the
// products that use it do with those of bfloat16 anyway.
template <typename Machine>
struct NativePairs {
  static constexpr int64_t kElements = 2;
  static Units<Machine> Round(const Float<Machine>* values) {
    alignas(64) static constexpr uint16_t kPairs[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const auto halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values[1], values[0]));
    return reinterpret_cast<Units<Machine>>(
        _mm512_permutexvar_epi16(_mm512_load_si512(kPairs), halves));
  }
};
#endif

}  // namespace
}  // namespace collops::kernels
