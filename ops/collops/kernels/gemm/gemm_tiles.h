#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/gemm/gemm_ahead.h"
#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/gemm/gemm_pack.h"

// The product of bfloat16 by tile registers, as AMX has them. In an unnamed namespace for the
// reason given in vector.h.
//
// A register holds 16 rows of 16 units or of 16 sums. `Registers` has four for sums, C(row, column)
// with row and column 0 or 1, and two for each factor, A(row) and B(column):
// - LoadA<row>, LoadB<column>, LoadC<row, column>(address, bytes from row to row), StoreC;
// - Zero<row, column>() sets sums, MultiplyAdd<row, column>() adds A(row) times B(column);
// - while a `Registers` lives, they may be used on its thread.
// Panels of rows are [units / 16][16 rows][16 units], so that a register is 1 KiB of memory; panels
// of the weight are [units][32], of which two registers are made.
namespace collops::kernels {
namespace {

constexpr int64_t kTileSide = 16;
constexpr int64_t kTilesColumns = 2 * kTileSide;  // of a panel of the weight

// With 32 columns of the weight 32 KiB, which stay in a first-level cache of 48 KiB while the rows
// of A pass by.
constexpr int64_t kTilesBlockUnits = 256;

constexpr int64_t kTileRowBytes = kTileSide * 4;

// GemmKernels::pack_rows. Of pairs of neighbours in k, so nothing is transposed.
inline void PackTileRows(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel) {
  constexpr int64_t kElementBytes = 2;
  char* to = reinterpret_cast<char*>(panel);
  for (int64_t done = 0; done < k * kElementBytes; done += kTileRowBytes) {
    const auto bytes = static_cast<size_t>(std::min(kTileRowBytes, k * kElementBytes - done));
    for (int64_t row = 0; row < kTileSide; ++row, to += kTileRowBytes) {
      const bool missing = row >= rows;
      if (missing || bytes < size_t{kTileRowBytes}) std::memset(to, 0, kTileRowBytes);
      if (missing) continue;
      const char* const from = static_cast<const char*>(source) + row * ld * kElementBytes + done;
      std::memcpy(to, from, bytes);
    }
  }
}

// Zeros from the last of the units of k up to a multiple of a register's.
inline void PadPanel(int64_t k, uint32_t* panel) {
  const int64_t units = (k + 1) / 2;
  const int64_t padding = (kTileSide - units % kTileSide) % kTileSide * kTilesColumns;
  std::fill_n(panel + units * kTilesColumns, padding, 0u);
}

// GemmKernels::pack_columns. `Machine` has vectors, and kColumnTile = kTilesColumns.
template <typename Machine>
void PackTileColumns(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel) {
  PackTransposed<Machine, PairUnits<Machine>, kTilesColumns>(source, ld, rows, k, panel);
  PadPanel(k, panel);
}

// GemmKernels::pack_straight.
template <typename Machine>
void PackTileStraight(const void* source, int64_t ld, int64_t k, int64_t columns,
                      int64_t panel_units, uint32_t* panels) {
  PackStraight<Machine, PairUnits<Machine>>(source, ld, k, columns, panel_units, panels);
  for (int64_t j = 0; j < columns; j += kTilesColumns, panels += panel_units) PadPanel(k, panels);
}

// The sums of up to two by two registers.
template <typename Registers, int kRows, int kColumns>
class TileSums {
 public:
  // Two panels of rows are `units` * 16 apart.
  static void Run(const uint32_t* a, const uint32_t* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches) {
    ForEach([&](auto row, auto column) {
      if (first) {
        Registers::template Zero<row, column>();
      } else {
        Registers::template LoadC<row, column>(At(c, ldc, row, column), ldc * 4);
      }
    });
    for (int64_t unit = 0; unit < units; unit += kTileSide) {
      fetches->Step();
      const uint32_t* const rows = a + unit * kTileSide;
      const uint32_t* const columns = b + unit * kTilesColumns;
      Registers::template LoadA<0>(rows, kTileRowBytes);
      Registers::template LoadB<0>(columns, kTilesColumns * 4);
      Registers::template MultiplyAdd<0, 0>();
      if constexpr (kRows == 2) {
        Registers::template LoadA<1>(rows + units * kTileSide, kTileRowBytes);
        Registers::template MultiplyAdd<1, 0>();
      }
      if constexpr (kColumns == 2) {
        Registers::template LoadB<1>(columns + kTileSide, kTilesColumns * 4);
        Registers::template MultiplyAdd<0, 1>();
        if constexpr (kRows == 2) Registers::template MultiplyAdd<1, 1>();
      }
    }
    ForEach([&](auto row, auto column) {
      Registers::template StoreC<row, column>(At(c, ldc, row, column), ldc * 4);
    });
  }

 private:
  static float* At(float* c, int64_t ldc, int row, int column) {
    return c + row * kTileSide * ldc + column * kTileSide;
  }

  template <typename Function>
  static void ForEach(const Function& function) {
    constexpr std::integral_constant<int, 0> kFirst;
    constexpr std::integral_constant<int, 1> kSecond;
    function(kFirst, kFirst);
    if constexpr (kColumns == 2) function(kFirst, kSecond);
    if constexpr (kRows == 2) function(kSecond, kFirst);
    if constexpr (kRows == 2 && kColumns == 2) function(kSecond, kSecond);
  }
};

// Up to 32 rows and 32 columns.
template <typename Registers>
void MultiplyTiles(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                   int64_t units, bool first, float* c, int64_t ldc, Fetches* fetches) {
  const bool two_rows = rows > kTileSide;
  const bool two_columns = columns > kTileSide;
  const auto run =
      two_rows ? (two_columns ? &TileSums<Registers, 2, 2>::Run : &TileSums<Registers, 2, 1>::Run)
               : (two_columns ? &TileSums<Registers, 1, 2>::Run : &TileSums<Registers, 1, 1>::Run);
  if (rows % kTileSide == 0 && columns % kTileSide == 0) {
    return run(a, b, units, first, c, ldc, fetches);
  }
  float copy[2 * kTileSide * kTilesColumns] = {};
  const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
  for (int64_t i = 0; i < rows && !first; ++i) {
    std::memcpy(copy + i * kTilesColumns, c + i * ldc, bytes);
  }
  run(a, b, units, first, copy, kTilesColumns, fetches);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * ldc, copy + i * kTilesColumns, bytes);
  }
}

// Rows that are multiplied at a time: their panels, 512 KiB, stay in a second-level cache of 2 MiB
// beside the block of the weight.
constexpr int64_t kTilesCachedRows = 512;

// GemmKernels::multiply.
template <typename Registers>
void MultiplyByTiles(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                     int64_t units, bool first, float* c, int64_t ldc, const NextWeight& next) {
  constexpr int64_t kHeight = 2 * kTileSide;
  const Registers registers;
  Fetches fetches;
  fetches.weight = Ahead(next.first, next.rows, next.row_bytes, next.ld_bytes);
  const int64_t tiles =
      ((rows + kHeight - 1) / kHeight) * ((columns + kTilesColumns - 1) / kTilesColumns);
  const int64_t steps = std::max<int64_t>(tiles * (units / kTileSide), 1);
  fetches.weight_lines = (fetches.weight.num_lines() + steps - 1) / steps;
  for (int64_t row = 0; row < rows; row += kTilesCachedRows) {
    const int64_t end = std::min(row + kTilesCachedRows, rows);
    for (int64_t j = 0; j < columns; j += kTilesColumns) {
      const int64_t width = std::min(kTilesColumns, columns - j);
      for (int64_t i = row; i < end; i += kHeight) {
        const int64_t height = std::min(kHeight, end - i);
        const int64_t next_height = std::min(kHeight, end - i - height);
        fetches.sums = Ahead(c + (i + height) * ldc + j, next_height, width * 4, ldc * 4);
        MultiplyTiles<Registers>(a + i * units, height, b + j * units, width, units, first,
                                 c + i * ldc + j, ldc, &fetches);
      }
    }
  }
}

// The table of kernels of bfloat16 for such registers.
template <typename Registers, typename Machine>
constexpr GemmKernels TileKernels() {
  static_assert(Machine::kColumnTile == kTilesColumns && kGemmRowUnit % kTileSide == 0);
  return {kTileSide,
          kTilesColumns,
          2,
          kTileSide,
          kTilesBlockUnits,
          &PackTileRows,
          &PackTileColumns<Machine>,
          &PackTileStraight<Machine>,
          &MultiplyByTiles<Registers>,
          nullptr};
}

}  // namespace
}  // namespace collops::kernels
