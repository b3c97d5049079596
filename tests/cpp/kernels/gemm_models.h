// Kernels of products that run on every machine: by blocks of 2 x 2 (gemm_matrix_loops.h), with
// models of bfmmla and smmla as the Arm Architecture Reference Manual describes them, and by tile
// registers, with registers that are arrays: the same cut, packing and order as on AMX.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "check.h"
#include "collops/kernels/gemm/gemm_matrix_loops.h"
#include "collops/kernels/half.h"
#include "collops/kernels/vector.h"

namespace gemm_models {

using namespace collops::kernels;

// Subnormal numbers become zero.
inline float Flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

// Every NaN is the same one.
inline float OneNan(float value) {
  return std::isnan(value) ? FloatFromBits(0x7fc00000) : value;
}

// A sum of normal numbers or zeros. If it is inexact, the last bit of the result is 1.
inline float AddToOdd(float a, float b) {
  const double sum = double{a} + double{b};
  const auto nearest = static_cast<float>(sum);
  if (!std::isfinite(nearest)) return OneNan(nearest);
  // What the sum of doubles lacks.
  const double b_in_sum = sum - double{a};
  const double rest = (double{a} - (sum - b_in_sum)) + (double{b} - b_in_sum);
  const double error = (double{nearest} - sum) - rest;
  if (error == 0) return Flush(nearest);
  const bool away_from_zero = (error > 0) == (nearest > 0);
  return Flush(FloatFromBits((BitsFromFloat(nearest) - (away_from_zero ? 1 : 0)) | 1));
}

// Exact but for numbers that are too small or too large: two bfloat16 have 16 bits together.
inline float MultiplyPair(uint16_t a, uint16_t b) {
  return OneNan(Flush(Flush(BFloat16ToFloat(a)) * Flush(BFloat16ToFloat(b))));
}

struct Bfmmla {
  using Element = uint16_t;
  static BlockOfSums MultiplyAdd(Factor a, Factor b, BlockOfSums sums) {
    for (int element = 0; element < 4; ++element) {
      const int row = element / 2 * 4;
      const int column = element % 2 * 4;
      float sum = Flush(sums[element]);
      for (int k = 0; k < 4; k += 2) {
        sum = AddToOdd(sum, AddToOdd(MultiplyPair(a[row + k], b[column + k]),
                                     MultiplyPair(a[row + k + 1], b[column + k + 1])));
      }
      sums[element] = sum;
    }
    return sums;
  }
};

struct Smmla {
  using Element = int8_t;
  static BlockOfSums MultiplyAdd(Factor a, Factor b, BlockOfSums sums) {
    const auto rows = reinterpret_cast<Vector<int8_t, 16>>(a);
    const auto columns = reinterpret_cast<Vector<int8_t, 16>>(b);
    auto blocks = reinterpret_cast<Vector<uint32_t, 16>>(sums);
    for (int element = 0; element < 4; ++element) {
      for (int k = 0; k < 8; ++k) {
        const int product = rows[element / 2 * 8 + k] * columns[element % 2 * 8 + k];
        blocks[element] += static_cast<uint32_t>(product);
      }
    }
    return reinterpret_cast<BlockOfSums>(blocks);
  }
};

// One register: 16 rows of 64 bytes.
struct Register {
  uint32_t rows[16][16];

  void Load(const void* from, int64_t row_bytes) {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(rows[i], static_cast<const char*>(from) + i * row_bytes, sizeof(rows[i]));
    }
  }
  void Store(void* to, int64_t row_bytes) const {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(static_cast<char*>(to) + i * row_bytes, rows[i], sizeof(rows[i]));
    }
  }
};

inline thread_local Register sums[2][2];
inline thread_local Register factors_a[2];
inline thread_local Register factors_b[2];
inline thread_local int in_use = 0;
inline std::atomic<int64_t> begins{0};
inline thread_local int64_t products = 0;  // of bfloat16

// Stands in for AmxRegisters, with the sums of tdpbf16ps in Intel's Software Developer's Manual:
// the 16 first elements of pairs, the 16 second ones, and then both added to the sum so far.
// Subnormal numbers are kept here.
struct ArrayRegisters {
  static void Begin() {
    ++in_use;
    ++begins;
  }
  static void End() { --in_use; }

  template <int kRow>
  static void LoadA(const void* from, int64_t row_bytes) {
    factors_a[kRow].Load(from, row_bytes);
  }
  template <int kColumn>
  static void LoadB(const void* from, int64_t row_bytes) {
    factors_b[kColumn].Load(from, row_bytes);
  }
  template <int kRow, int kColumn>
  static void LoadC(const void* from, int64_t row_bytes) {
    sums[kRow][kColumn].Load(from, row_bytes);
  }
  template <int kRow, int kColumn>
  static void StoreC(void* to, int64_t row_bytes) {
    EXPECT_EQ(in_use, 1);
    sums[kRow][kColumn].Store(to, row_bytes);
  }
  template <int kRow, int kColumn>
  static void Zero() {
    sums[kRow][kColumn] = {};
  }

  template <int kRow, int kColumn>
  static void MultiplyAdd() {
    ++products;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        float pair[2] = {};
        for (int unit = 0; unit < 16; ++unit) {
          const uint32_t a = factors_a[kRow].rows[i][unit];
          const uint32_t b = factors_b[kColumn].rows[unit][j];
          pair[0] += FloatFromBits(a << 16) * FloatFromBits(b << 16);
          pair[1] += FloatFromBits(a & 0xffff0000u) * FloatFromBits(b & 0xffff0000u);
        }
        uint32_t& sum = sums[kRow][kColumn].rows[i][j];
        sum = BitsFromFloat(FloatFromBits(sum) + (pair[0] + pair[1]));
      }
    }
  }
};

// Stands in for AmxInt8Registers: tdpbssd.
struct Int8Registers : ArrayRegisters {
  template <int kRow, int kColumn>
  static void MultiplyAdd() {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        uint32_t& sum = sums[kRow][kColumn].rows[i][j];
        for (int unit = 0; unit < 16; ++unit) {
          const uint32_t a = factors_a[kRow].rows[i][unit];
          const uint32_t b = factors_b[kColumn].rows[unit][j];
          for (int byte = 0; byte < 32; byte += 8) {
            sum += static_cast<uint32_t>(int8_t(a >> byte) * int8_t(b >> byte));
          }
        }
      }
    }
  }
};

// Packs the weight with vectors of 16 bytes.
struct Vectors {
  static constexpr int kVectorBytes = 16;
  static constexpr int64_t kColumnTile = kTilesColumns;
  static void Transpose(Vector<uint32_t, 16> (&rows)[4]) {
    Vector<uint32_t, 16> columns[4];
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) columns[j][i] = rows[i][j];
    }
    std::memcpy(rows, columns, sizeof(columns));
  }
  static Vector<uint32_t, 16> ZeroExtend(Vector<uint16_t, 8> halves) {
    return __builtin_convertvector(halves, Vector<uint32_t, 16>);
  }
};

inline constexpr GemmKernels kTiles =
    TileKernels<ArrayRegisters, Vectors, PairUnits<Vectors>, PairRounding<Vectors>>();
inline constexpr GemmKernels kInt8Tiles =
    TileKernels<Int8Registers, Vectors, ByteQuadUnits<Vectors>>();

// Stands in for Avx512Vnni: vpdpbusd, on vectors of 16 bytes.
struct ByteQuads : Vectors {
  static constexpr int64_t kRowTile = 4;
  static constexpr int64_t kColumnTile = 8;
  static constexpr int64_t kBlockUnits = 256;
  static constexpr uint32_t kShift = 0x80808080u;
  using Sum = Vector<float, 16>;
  using Bits = Vector<uint32_t, 16>;
  static Sum Broadcast(const uint32_t* unit) { return reinterpret_cast<Sum>(Bits{} + *unit); }
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
    Bits lanes = reinterpret_cast<Bits>(sum);
    for (int lane = 0; lane < 4; ++lane) {
      for (int byte = 0; byte < 32; byte += 8) {
        const int product = uint8_t(reinterpret_cast<Bits>(a)[lane] >> byte) *
                            int8_t(reinterpret_cast<Bits>(b)[lane] >> byte);
        lanes[lane] += static_cast<uint32_t>(product);
      }
    }
    return reinterpret_cast<Sum>(lanes);
  }
};
inline constexpr GemmKernels kByteQuads =
    GemmKernelsFor<ByteQuads, ByteQuadUnits<ByteQuads>,
                   ByteQuadUnits<ByteQuads, ByteQuads::kShift>>(nullptr);
inline constexpr const GemmKernels* kBlocks = &kBlockKernels<Bfmmla>;
inline constexpr const GemmKernels* kInt8Blocks = &kInt8BlockKernels<Smmla>;

}  // namespace gemm_models
