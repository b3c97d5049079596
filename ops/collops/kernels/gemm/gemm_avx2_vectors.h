#pragma once

#include <cstdint>

#include "collops/kernels/vector.h"

// What the products for AVX2 and AVX-VNNI have in common. In an unnamed namespace for the reason
// given in vector.h.
namespace collops::kernels {
namespace {

// 12 sums, a row of three vectors and a broadcast unit: all 16 registers.
struct Avx2Vectors {
  static constexpr int kVectorBytes = 32;
  static constexpr int64_t kRowTile = 4;
  static constexpr int64_t kColumnTile = 24;
  static constexpr int64_t kBlockUnits = 256;
  using Bits = Vector<uint32_t, kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Broadcast(const uint32_t* unit) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(*unit)));
  }
  // 4 x 4 units in each of the two lanes of 16 bytes: pairs of rows, then pairs of pairs. rows[c]
  // becomes, in lane l, column 4l + c.
  static void TransposeLanes(__m256i* rows) {
    const __m256i a = _mm256_unpacklo_epi32(rows[0], rows[1]);
    const __m256i b = _mm256_unpackhi_epi32(rows[0], rows[1]);
    const __m256i c = _mm256_unpacklo_epi32(rows[2], rows[3]);
    const __m256i d = _mm256_unpackhi_epi32(rows[2], rows[3]);
    rows[0] = _mm256_unpacklo_epi64(a, c);
    rows[1] = _mm256_unpackhi_epi64(a, c);
    rows[2] = _mm256_unpacklo_epi64(b, d);
    rows[3] = _mm256_unpackhi_epi64(b, d);
  }

  static void Transpose(Bits (&rows)[8]) {
    __m256i a[8];
    for (int i = 0; i < 8; ++i) a[i] = reinterpret_cast<__m256i>(rows[i]);
    TransposeLanes(a);
    TransposeLanes(a + 4);
    for (int c = 0; c < 4; ++c) {
      rows[c] = reinterpret_cast<Bits>(_mm256_permute2x128_si256(a[c], a[c + 4], 0x20));
      rows[c + 4] = reinterpret_cast<Bits>(_mm256_permute2x128_si256(a[c], a[c + 4], 0x31));
    }
  }

  // 4 rows of 8 units to 8 rows of 4.
  static void StoreTransposed(const Bits (&rows)[4], uint32_t* out) {
    __m256i a[4];
    for (int i = 0; i < 4; ++i) a[i] = reinterpret_cast<__m256i>(rows[i]);
    TransposeLanes(a);
    for (int c = 0; c < 4; ++c) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * c), _mm256_castsi256_si128(a[c]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * (c + 4)),
                       _mm256_extracti128_si256(a[c], 1));
    }
  }

  static Bits ZeroExtend(Vector<uint16_t, 16> halves) {
    return reinterpret_cast<Bits>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(halves)));
  }
};

}  // namespace
}  // namespace collops::kernels
