#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/gemm/gemm_loops.h"
#include "collops/kernels/gemm/gemm_pack.h"

// Products of bfloat16 and int8 by instructions that multiply small matrices. In an unnamed
// namespace for the reason given in vector.h. Only the instructions depend on the machine, so that
// a test can pass its own.
namespace collops::kernels {
namespace {

// By blocks, as bfmmla and smmla have them: an Instruction has MultiplyAdd(a, b, sums), where `a`
// holds two rows and `b` two columns, of neighbours in k, four of bfloat16 or eight of int8, and
// `sums` are 2 x 2. Panels hold words of such neighbours, which are two units: [words of k][tile].
// Two words side by side are one factor of the instruction.

using Factor = Vector<uint16_t, 16>;    // two words
using BlockOfSums = Vector<float, 16>;  // [2][2]
using TwoWords = Vector<uint64_t, 16>;  // [2]

constexpr int64_t kWordUnits = 2;
constexpr int64_t kWordBytes = 8;
template <typename Element>
constexpr int64_t kWordElements = kWordBytes / sizeof(Element);

template <typename V>
void StoreVector(V value, void* to) {
  Whole::Store(static_cast<char*>(to), value);
}

// 24 blocks of sums, four factors of rows and one of columns: 29 of the 32 registers.
template <typename Instruction>
struct Blocks : Instruction {
  static constexpr int kVectorBytes = 16;
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 12;
  static constexpr int64_t kBlockUnits = 256;

  static void Transpose(Vector<uint32_t, 16> (&rows)[4]) { TransposeFour(rows); }
};

// Two units of a column are a word; of the last one the second may be missing, and is zero.
template <typename Instruction>
struct PanelUnits<Blocks<Instruction>> {
  static constexpr int64_t kStep = kWordUnits;
  static void Store(uint32_t* panel, int64_t unit, Vector<uint32_t, 16> units) {
    uint32_t* const words =
        panel + unit / kWordUnits * Blocks<Instruction>::kColumnTile * kWordUnits;
    for (int64_t i = 0; i < 4; ++i) {
      words[i * kWordUnits + unit % kWordUnits] = units[i];
      if (unit % kWordUnits == 0) words[i * kWordUnits + 1] = 0;
    }
  }
};

// The Tile of gemm_loops.h, whose vectors of four columns are two blocks here.
template <typename Instruction, size_t kRows, size_t kVectors>
class Tile<Blocks<Instruction>, WholeColumns<Blocks<Instruction>>, kRows, kVectors> {
 public:
  static void Run(const uint32_t* a, const uint32_t* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches) {
    Run(a, b, units, first, c, ldc, fetches, std::make_index_sequence<(kRows + 1) / 2>(),
        std::make_index_sequence<kVectors>());
  }

 private:
  using Machine = Blocks<Instruction>;
  using Row = BlockOfSums[2 * kVectors];  // of blocks

  // Whether block row `kRow` has both of its rows.
  template <size_t kRow>
  static constexpr bool kIsWhole = 2 * kRow + 1 < kRows;

  template <size_t kRow, size_t kVector>
  static void Load(const float* c, int64_t ldc, Row* sums) {
    const float* const from = c + static_cast<int64_t>(2 * kRow) * ldc + 4 * kVector;
    const auto upper = LoadVector<TwoWords>(from);
    TwoWords lower{};
    if constexpr (kIsWhole<kRow>) lower = LoadVector<TwoWords>(from + ldc);
    BlockOfSums* const blocks = sums[kRow] + 2 * kVector;
    blocks[0] = reinterpret_cast<BlockOfSums>(__builtin_shufflevector(upper, lower, 0, 2));
    blocks[1] = reinterpret_cast<BlockOfSums>(__builtin_shufflevector(upper, lower, 1, 3));
  }

  template <size_t kRow, size_t kVector>
  static void Store(const Row* sums, float* c, int64_t ldc) {
    float* const to = c + static_cast<int64_t>(2 * kRow) * ldc + 4 * kVector;
    const auto left = reinterpret_cast<TwoWords>(sums[kRow][2 * kVector]);
    const auto right = reinterpret_cast<TwoWords>(sums[kRow][2 * kVector + 1]);
    StoreVector(__builtin_shufflevector(left, right, 0, 2), to);
    if constexpr (kIsWhole<kRow>) {
      StoreVector(__builtin_shufflevector(left, right, 1, 3), to + ldc);
    }
  }

  // A vector of columns of all rows.
  template <size_t kVector, size_t... kRow>
  static void LoadColumns(bool first, const float* c, int64_t ldc, Row* sums,
                          std::index_sequence<kRow...>) {
    if (first) {
      ((sums[kRow][2 * kVector] = sums[kRow][2 * kVector + 1] = BlockOfSums{}), ...);
    } else {
      (Load<kRow, kVector>(c, ldc, sums), ...);
    }
  }
  template <size_t kVector, size_t... kRow>
  static void StoreColumns(const Row* sums, float* c, int64_t ldc, std::index_sequence<kRow...>) {
    (Store<kRow, kVector>(sums, c, ldc), ...);
  }

  // One factor of columns times all rows.
  template <size_t kBlock, size_t... kRow>
  static void MultiplyColumns(const Factor* a, const uint32_t* b, Row* sums,
                              std::index_sequence<kRow...>) {
    const auto columns = LoadVector<Factor>(b + 4 * kBlock);
    ((sums[kRow][kBlock] = Machine::MultiplyAdd(a[kRow], columns, sums[kRow][kBlock])), ...);
  }

  template <size_t... kRow, size_t... kVector>
  static void Run(const uint32_t* a, const uint32_t* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches, std::index_sequence<kRow...> rows,
                  std::index_sequence<kVector...>) {
    Row sums[sizeof...(kRow)];
    (LoadColumns<kVector>(first, c, ldc, sums, rows), ...);
    for (int64_t unit = 0; unit < units; unit += kStepUnits) {
      fetches->Step();
      const int64_t step = std::min(kStepUnits, units - unit);
      for (int64_t i = 0; i < step; i += kWordUnits) {
        const Factor factors[] = {LoadVector<Factor>(a + 4 * kRow)...};
        ((MultiplyColumns<2 * kVector>(factors, b, sums, rows),
          MultiplyColumns<2 * kVector + 1>(factors, b, sums, rows)),
         ...);
        a += kWordUnits * Machine::kRowTile;
        b += kWordUnits * Machine::kColumnTile;
      }
    }
    (StoreColumns<kVector>(sums, c, ldc, rows), ...);
  }
};

// GemmKernels::pack_rows and pack_columns: two rows at a time.
template <typename Element, int64_t kTile>
void PackWords(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel) {
  constexpr int64_t kLineUnits = kWordUnits * kTile;
  constexpr int64_t kBytes = 2 * kWordBytes;
  const int64_t ld_bytes = ld * static_cast<int64_t>(sizeof(Element));
  const int64_t row_bytes = k * static_cast<int64_t>(sizeof(Element));
  for (int64_t i = 0; i < kTile; i += 2) {
    const char* const row = static_cast<const char*>(source) + i * ld_bytes;
    uint32_t* out = panel + kWordUnits * i;
    int64_t done = 0;
    for (; rows - i >= 2 && row_bytes - done >= kBytes; done += kBytes, out += 2 * kLineUnits) {
      const auto a = LoadVector<TwoWords>(row + done);
      const auto b = LoadVector<TwoWords>(row + ld_bytes + done);
      StoreVector(__builtin_shufflevector(a, b, 0, 2), out);
      StoreVector(__builtin_shufflevector(a, b, 1, 3), out + kLineUnits);
    }
    for (; done < row_bytes; done += kWordBytes, out += kLineUnits) {
      const auto bytes = static_cast<size_t>(std::min(kWordBytes, row_bytes - done));
      std::memset(out, 0, static_cast<size_t>(kBytes));
      for (int64_t j = 0; j < std::min<int64_t>(rows - i, 2); ++j) {
        std::memcpy(out + kWordUnits * j, row + j * ld_bytes + done, bytes);
      }
    }
  }
}

// Four columns of rows that are `ld_bytes` apart, as the units of a line of words: of the first
// half of the rows and of the second.
struct LineUnits {
  using Pairs = Vector<uint32_t, 16>;

  LineUnits(const char* source, int64_t ld_bytes, uint16_t /*element*/) {
    using Columns = Vector<uint16_t, 8>;
    const auto zip = [&](int64_t row) {
      const auto a = LoadVector<Columns>(source + row * ld_bytes);
      const auto b = LoadVector<Columns>(source + (row + 1) * ld_bytes);
      return reinterpret_cast<Pairs>(__builtin_shufflevector(a, b, 0, 4, 1, 5, 2, 6, 3, 7));
    };
    halves[0] = zip(0);
    halves[1] = zip(2);
  }
  LineUnits(const char* source, int64_t ld_bytes, int8_t /*element*/) {
    for (int64_t half = 0; half < 2; ++half, source += 4 * ld_bytes) {
      uint32_t columns[4];
      for (int64_t i = 0; i < 4; ++i) std::memcpy(columns + i, source + i * ld_bytes, 4);
      const auto rows = LoadVector<Vector<uint8_t, 16>>(columns);
      halves[half] = reinterpret_cast<Pairs>(__builtin_shufflevector(
          rows, rows, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    }
  }

  Pairs halves[2];
};

// One line of words of a panel, from rows that are `ld_bytes` apart.
template <typename Element, int64_t kTile>
void PackLine(const char* source, int64_t ld_bytes, uint32_t* out) {
  for (int64_t j = 0; j < kTile; j += 4, source += 4 * sizeof(Element), out += 4 * kWordUnits) {
    const LineUnits units(source, ld_bytes, Element{});
    const auto& [a, b] = units.halves;
    StoreVector(__builtin_shufflevector(a, b, 0, 4, 1, 5), out);
    StoreVector(__builtin_shufflevector(a, b, 2, 6, 3, 7), out + 2 * kWordUnits);
  }
}

// GemmKernels::pack_straight.
template <typename Element, int64_t kTile>
void PackWordsStraight(const void* source, int64_t ld, int64_t k, int64_t columns,
                       int64_t panel_units, uint32_t* panels) {
  constexpr auto kElementBytes = static_cast<int64_t>(sizeof(Element));
  constexpr int64_t kElements = kWordElements<Element>;
  constexpr int64_t kRowBytes = kTile * kElementBytes;
  for (int64_t at = 0; at < k; at += kElements) {
    const char* const row = static_cast<const char*>(source) + at * ld * kElementBytes;
    const int64_t rows = std::min(kElements, k - at);
    uint32_t* out = panels + at / kElements * kWordUnits * kTile;
    for (int64_t j = 0; j < columns; j += kTile, out += panel_units) {
      if (rows == kElements && columns - j >= kTile) {
        PackLine<Element, kTile>(row + j * kElementBytes, ld * kElementBytes, out);
        continue;
      }
      char whole[static_cast<size_t>(kElements * kRowBytes)] = {};
      const auto bytes = static_cast<size_t>(std::min(kTile, columns - j) * kElementBytes);
      for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(whole + i * kRowBytes, row + (i * ld + j) * kElementBytes, bytes);
      }
      PackLine<Element, kTile>(whole, kRowBytes, out);
    }
  }
}

// The table of kernels with one instruction.
template <typename Instruction>
constexpr GemmKernels BlockKernelsFor() {
  using Machine = Blocks<Instruction>;
  using Element = typename Instruction::Element;
  return {RowTile<Machine>(),
          Machine::kColumnTile,
          kWordElements<Element> / kWordUnits,
          kWordUnits,
          Machine::kBlockUnits,
          &PackWords<Element, Machine::kRowTile>,
          &PackWords<Element, Machine::kColumnTile>,
          &PackWordsStraight<Element, Machine::kColumnTile>,
          &Multiply<Machine, WholeColumns<Machine>>,
          nullptr,
          nullptr,
          nullptr};
}
template <typename Instruction, typename Machine = Blocks<Instruction>>
constexpr GemmKernels kBlockKernels =
    OfFloats<Machine, PairRounding<Machine>>(BlockKernelsFor<Instruction>());
template <typename Instruction>
constexpr GemmKernels kInt8BlockKernels =
    OfInt8<Blocks<Instruction>>(BlockKernelsFor<Instruction>());

// By tile registers, as AMX has them.
//
// A register holds 16 rows of 16 units or of 16 sums. `Registers` has four for sums, C(row, column)
// with row and column 0 or 1, and two for each factor, A(row) and B(column):
// - LoadA<row>, LoadB<column>, LoadC<row, column>(address, bytes from row to row), StoreC;
// - Zero<row, column>() sets sums, MultiplyAdd<row, column>() adds A(row) times B(column);
// - a thread may use them between Begin() and End().
// Panels of rows are [units / 16][16 rows][16 units], so that a register is 1 KiB of memory; panels
// of the weight are [units][32], of which two registers are made.
constexpr int64_t kTileSide = 16;
constexpr int64_t kTilesColumns = 2 * kTileSide;  // of a panel of the weight

// With 32 columns of the weight 32 KiB, and as much of 32 rows of A, which pass by: more than a
// first-level cache of 48 KiB keeps. Shorter blocks would fit, but load and store sums more often.
constexpr int64_t kTilesBlockUnits = 256;

constexpr int64_t kTileRowBytes = kTileSide * 4;

// GemmKernels::pack_rows. Of neighbours in k, so nothing is transposed.
template <int64_t kElementBytes>
void PackTileRows(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel) {
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
template <typename Element>
void PadPanel(int64_t k, uint32_t* panel) {
  const int64_t units = (k + Element::kElements - 1) / Element::kElements;
  const int64_t padding = (kTileSide - units % kTileSide) % kTileSide * kTilesColumns;
  std::fill_n(panel + units * kTilesColumns, padding, 0u);
}

// GemmKernels::pack_columns. `Machine` has vectors, and kColumnTile = kTilesColumns.
template <typename Machine, typename Element>
void PackTileColumns(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel) {
  PackTransposed<Machine, Element, kTilesColumns>(source, ld, rows, k, panel);
  PadPanel<Element>(k, panel);
}

// GemmKernels::pack_straight.
template <typename Machine, typename Element>
void PackTileStraight(const void* source, int64_t ld, int64_t k, int64_t columns,
                      int64_t panel_units, uint32_t* panels) {
  PackStraight<Machine, Element>(source, ld, k, columns, panel_units, panels);
  for (int64_t j = 0; j < columns; j += kTilesColumns, panels += panel_units) {
    PadPanel<Element>(k, panels);
  }
}

// GemmKernels::pack_bytes, if there is a Rounding.
template <typename Machine, typename Rounding>
constexpr auto BytesOfTiles() -> decltype(GemmKernels::pack_bytes) {
  if constexpr (std::is_void_v<Rounding>) {
    return nullptr;
  } else {
    return [](const ByteWeight& weight, int64_t panel_units, uint32_t* panels) {
      PackBytes<Machine, Rounding>(weight, panel_units, panels);
      for (int64_t j = 0; j < weight.columns; j += kTilesColumns, panels += panel_units) {
        PadPanel<Rounding>(weight.k, panels);
      }
    };
  }
}

// What is done between the steps of a product: some lines of each are fetched, and pieces packed.
struct BesideTiles {
  Ahead weight;
  Ahead rows;
  Ahead sums;  // where the next tile's sums are
  int64_t weight_lines = 0;
  int64_t rows_lines = 0;
  int64_t sums_lines = 0;
  PanelPacking* packing = nullptr;

  [[gnu::always_inline]] void Step() {
    weight.Fetch(weight_lines);
    rows.Fetch(rows_lines);
    sums.Fetch(sums_lines);
    if (packing != nullptr && --packing->steps_left == 0) packing->PackPiece();
  }
};

// The sums of up to two by two registers.
template <typename Registers, int kRows, int kColumns>
class TileSums {
 public:
  // Two panels of rows are `units` * 16 apart.
  static void Run(const uint32_t* a, const uint32_t* b, int64_t units, bool first, float* c,
                  int64_t ldc, BesideTiles* beside) {
    ForEach([&](auto row, auto column) {
      if (first) {
        Registers::template Zero<row, column>();
      } else {
        Registers::template LoadC<row, column>(At(c, ldc, row, column), ldc * 4);
      }
    });
    for (int64_t unit = 0; unit < units; unit += kTileSide) {
      beside->Step();
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
                   int64_t units, bool first, float* c, int64_t ldc, BesideTiles* beside) {
  const bool two_rows = rows > kTileSide;
  const bool two_columns = columns > kTileSide;
  const auto run =
      two_rows ? (two_columns ? &TileSums<Registers, 2, 2>::Run : &TileSums<Registers, 2, 1>::Run)
               : (two_columns ? &TileSums<Registers, 1, 2>::Run : &TileSums<Registers, 1, 1>::Run);
  if (rows % kTileSide == 0 && columns % kTileSide == 0) {
    return run(a, b, units, first, c, ldc, beside);
  }
  float copy[2 * kTileSide * kTilesColumns] = {};
  const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
  for (int64_t i = 0; i < rows && !first; ++i) {
    std::memcpy(copy + i * kTilesColumns, c + i * ldc, bytes);
  }
  run(a, b, units, first, copy, kTilesColumns, beside);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * ldc, copy + i * kTilesColumns, bytes);
  }
}

// GemmKernels::cached_rows: their panels, 256 KiB, and those that are fetched meanwhile stay in a
// second-level cache of 2 MiB beside the panels of the weight and the sums, also where two threads
// of a core share it.
constexpr int64_t kTilesCachedRows = 256;

// GemmKernels::multiply.
template <typename Registers>
void MultiplyByTiles(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                     int64_t units, bool first, float* c, int64_t ldc, const Meanwhile& meanwhile) {
  constexpr int64_t kHeight = 2 * kTileSide;
  const int64_t tiles =
      ((rows + kHeight - 1) / kHeight) * ((columns + kTilesColumns - 1) / kTilesColumns);
  const int64_t steps_of_tile = std::max<int64_t>(units / kTileSide, 1);
  const int64_t steps = std::max<int64_t>(tiles, 1) * steps_of_tile;
  BesideTiles beside;
  beside.weight = FetchAhead(meanwhile.weight);
  beside.weight_lines = LinesOfStep(beside.weight, steps);
  beside.rows = FetchAhead(meanwhile.rows);
  beside.rows_lines = LinesOfStep(beside.rows, steps);
  beside.packing = meanwhile.packing;
  for (int64_t j = 0; j < columns; j += kTilesColumns) {
    const int64_t width = std::min(kTilesColumns, columns - j);
    for (int64_t i = 0; i < rows; i += kHeight) {
      const int64_t height = std::min(kHeight, rows - i);
      const bool last = i + height == rows;
      const int64_t next_height = std::min(kHeight, last ? rows : rows - i - height);
      beside.sums = Ahead(last ? c + j + kTilesColumns : c + (i + height) * ldc + j, next_height,
                          width * 4, ldc * 4);
      beside.sums_lines = LinesOfStep(beside.sums, steps_of_tile);
      MultiplyTiles<Registers>(a + i * units, height, b + j * units, width, units, first,
                               c + i * ldc + j, ldc, &beside);
    }
  }
}

// The table of kernels of one kind of unit for such registers.
template <typename Registers, typename Machine, typename Element, typename Rounding = void>
constexpr GemmKernels TileKernels() {
  static_assert(Machine::kColumnTile == kTilesColumns && kGemmRowUnit % kTileSide == 0);
  return {kTileSide,
          kTilesColumns,
          Element::kElements,
          kTileSide,
          kTilesBlockUnits,
          &PackTileRows<Element::kElementBytes>,
          &PackTileColumns<Machine, Element>,
          &PackTileStraight<Machine, Element>,
          &MultiplyByTiles<Registers>,
          nullptr,
          nullptr,
          BytesOfTiles<Machine, Rounding>(),
          kTilesCachedRows,
          &Registers::Begin,
          &Registers::End};
}

}  // namespace
}  // namespace collops::kernels
