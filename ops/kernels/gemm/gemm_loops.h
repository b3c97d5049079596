#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_ahead.h"
#include "kernels/gemm/gemm_kernels.h"
#include "kernels/gemm/gemm_pack.h"
#include "kernels/vector.h"

// The loops of a product, for all machines. In an unnamed namespace for the reason given in
// vector.h. A Machine defines the size of a tile (kRowTile, kColumnTile), broadcasts a unit and
// multiplies units.
namespace collops::kernels {
namespace {

template <typename Machine>
using Floats = Vector<float, Machine::kVectorBytes>;

// Units between two prefetches.
constexpr int64_t kStepUnits = 8;

// The product of one panel of rows and one of columns; its sums stay in registers.
template <typename Machine, size_t kRows, size_t kVectors>
class Tile {
 public:
  static void Run(const uint32_t* a, const uint32_t* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches) {
    Run(a, b, units, first, c, ldc, fetches, std::make_index_sequence<kRows>(),
        std::make_index_sequence<kVectors>());
  }

 private:
  using Sum = Floats<Machine>;
  static constexpr size_t kLane = static_cast<size_t>(kLanes<Machine>);

  template <size_t... kVector>
  static void Row(const uint32_t* a, const Sum (&b)[kVectors], Sum* sums,
                  std::index_sequence<kVector...>) {
    const Sum unit = Machine::Broadcast(a);
    ((sums[kVector] = Machine::MultiplyAdd(unit, b[kVector], sums[kVector])), ...);
  }

  template <size_t... kRow, size_t... kVector>
  static void Run(const uint32_t* a, const uint32_t* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches, std::index_sequence<kRow...>,
                  std::index_sequence<kVector...> vectors) {
    Sum sums[kRows][kVectors];
    const auto load = [&](Sum* row, const float* from) {
      ((row[kVector] = first ? Sum{} : LoadVector<Sum>(from + kVector * kLane)), ...);
    };
    const auto store = [&](const Sum* row, float* to) {
      (Whole::Store(reinterpret_cast<char*>(to + kVector * kLane), row[kVector]), ...);
    };
    (load(sums[kRow], c + static_cast<int64_t>(kRow) * ldc), ...);
    for (int64_t unit = 0; unit < units; unit += kStepUnits) {
      fetches->Step();
      const int64_t step = std::min(kStepUnits, units - unit);
      for (int64_t i = 0; i < step; ++i) {
        const Sum columns[] = {LoadVector<Sum>(b + kVector * kLane)...};
        (Row(a + kRow, columns, sums[kRow], vectors), ...);
        a += Machine::kRowTile;
        b += Machine::kColumnTile;
      }
    }
    (store(sums[kRow], c + static_cast<int64_t>(kRow) * ldc), ...);
  }
};

using TileFunction = void (*)(const uint32_t* a, const uint32_t* b, int64_t units, bool first,
                              float* c, int64_t ldc, Fetches* fetches);

// The tiles for every number of rows, from 1 on, and of vectors.
template <typename Machine>
class Tiles {
 public:
  static TileFunction Find(int64_t rows, int64_t vectors) {
    static constexpr Table kTable = All(std::make_index_sequence<Machine::kRowTile>());
    return kTable.tiles[rows - 1][vectors - 1];
  }

 private:
  static constexpr size_t kVectors = Machine::kColumnTile / kLanes<Machine>;
  struct Table {
    TileFunction tiles[Machine::kRowTile][kVectors];
  };

  template <size_t kRows, size_t... kVector>
  static constexpr void Fill(TileFunction (&row)[kVectors], std::index_sequence<kVector...>) {
    ((row[kVector] = &Tile<Machine, kRows, kVector + 1>::Run), ...);
  }
  template <size_t... kRow>
  static constexpr Table All(std::index_sequence<kRow...>) {
    Table table{};
    (Fill<kRow + 1>(table.tiles[kRow], std::make_index_sequence<kVectors>()), ...);
    return table;
  }
};

// A tile whose last vector is not full: computed on a copy of C.
template <typename Machine>
void RunEdge(TileFunction tile, const uint32_t* a, const uint32_t* b, int64_t units, bool first,
             float* c, int64_t ldc, int64_t rows, int64_t columns, Fetches* fetches) {
  float copy[Machine::kRowTile * Machine::kColumnTile] = {};
  const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
  for (int64_t i = 0; i < rows && !first; ++i) {
    std::memcpy(copy + i * Machine::kColumnTile, c + i * ldc, bytes);
  }
  tile(a, b, units, first, copy, Machine::kColumnTile, fetches);
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(c + i * ldc, copy + i * Machine::kColumnTile, bytes);
  }
}

// Rows that are multiplied at a time: their panels stay in a core's second-level cache beside the
// block of the weight.
constexpr int64_t kCachedRows = 64;

template <typename Machine>
void MultiplyTile(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                  int64_t units, bool first, float* c, int64_t ldc, Fetches* fetches) {
  constexpr int64_t kLane = kLanes<Machine>;
  const TileFunction tile = Tiles<Machine>::Find(rows, (columns + kLane - 1) / kLane);
  if (columns % kLane == 0) {
    tile(a, b, units, first, c, ldc, fetches);
  } else {
    RunEdge<Machine>(tile, a, b, units, first, c, ldc, rows, columns, fetches);
  }
}

// Some rows, whose panels stay in the second-level cache, times the block of the weight.
template <typename Machine>
void MultiplyRows(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                  int64_t units, bool first, float* c, int64_t ldc, Fetches* fetches) {
  for (int64_t j = 0; j < columns; j += Machine::kColumnTile) {
    const int64_t width = std::min(Machine::kColumnTile, columns - j);
    for (int64_t i = 0; i < rows; i += Machine::kRowTile) {
      const int64_t height = std::min(Machine::kRowTile, rows - i);
      const bool last = i + height == rows;
      fetches->sums =
          last ? Ahead(c + j + Machine::kColumnTile, Machine::kRowTile, width * 4, ldc * 4)
               : Ahead(c + (i + height) * ldc + j, Machine::kRowTile, width * 4, ldc * 4);
      MultiplyTile<Machine>(a + i * units, height, b + j * units, width, units, first,
                            c + i * ldc + j, ldc, fetches);
    }
  }
}

// GemmKernels::multiply.
template <typename Machine>
void Multiply(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns, int64_t units,
              bool first, float* c, int64_t ldc, const NextWeight& next) {
  Fetches fetches;
  fetches.weight = Ahead(next.first, next.rows, next.row_bytes, next.ld_bytes);
  const int64_t tiles = ((rows + Machine::kRowTile - 1) / Machine::kRowTile) *
                        ((columns + Machine::kColumnTile - 1) / Machine::kColumnTile);
  const int64_t steps = std::max<int64_t>(tiles * ((units + kStepUnits - 1) / kStepUnits), 1);
  fetches.weight_lines = (fetches.weight.num_lines() + steps - 1) / steps;
  for (int64_t row = 0; row < rows; row += kCachedRows) {
    const int64_t height = std::min(kCachedRows, rows - row);
    const int64_t next_height = std::min(kCachedRows, rows - row - height);
    fetches.rows = Ahead(a + (row + height) * units, 1, next_height * units * 4, 0);
    MultiplyRows<Machine>(a + row * units, height, b, columns, units, first, c + row * ldc, ldc,
                          &fetches);
  }
}

// Pieces of rows, cached rows and a thread's rows must hold whole tiles.
template <typename Machine>
constexpr int64_t RowTile() {
  static_assert(kGemmRowUnit % Machine::kRowTile == 0 && kCachedRows % Machine::kRowTile == 0);
  return Machine::kRowTile;
}

// The table of kernels of one machine and one kind of unit.
template <typename Machine, typename Element>
constexpr GemmKernels kGemmKernels = {RowTile<Machine>(),
                                      Machine::kColumnTile,
                                      Element::kElements,
                                      &PackTransposed<Machine, Element, Machine::kRowTile>,
                                      &PackTransposed<Machine, Element, Machine::kColumnTile>,
                                      &PackStraight<Machine, Element>,
                                      &Multiply<Machine>};

// For a Machine that multiplies float32.
template <typename Machine>
const GemmKernels* Float32KernelsFor(DType dtype) {
  using BFloat16Units = WidenedUnits<Machine, &WidenBFloat16<Machine>>;
  using Float16Units = WidenedUnits<Machine, &Machine::WidenFloat16>;
  if (dtype == DType::kFloat32) return &kGemmKernels<Machine, Float32Units<Machine>>;
  if (dtype == DType::kBFloat16) return &kGemmKernels<Machine, BFloat16Units>;
  if (dtype == DType::kFloat16) return &kGemmKernels<Machine, Float16Units>;
  return nullptr;
}

}  // namespace
}  // namespace collops::kernels
