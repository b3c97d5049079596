#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/gemm/gemm_pack.h"
#include "collops/kernels/vector.h"

// The loops of a product, for all machines. In an unnamed namespace for the reason given in
// vector.h. A Machine defines the size of a tile (kRowTile, kColumnTile), broadcasts a unit and
// multiplies units.
namespace collops::kernels {
namespace {

template <typename Machine>
using Floats = Vector<float, Machine::kVectorBytes>;

// Units between two prefetches.
constexpr int64_t kStepUnits = 8;

// How a tile reads a panel of the weight: as units, or as 16-bit numbers that `kWiden` widens.
template <typename Machine>
struct WholeColumns {
  using Unit = uint32_t;
  static Floats<Machine> Load(const Unit* b) { return LoadVector<Floats<Machine>>(b); }
};
template <typename Machine, Units<Machine> (*kWiden)(Halves<Machine>)>
struct HalfColumns {
  using Unit = uint16_t;
  static Floats<Machine> Load(const Unit* b) {
    return reinterpret_cast<Floats<Machine>>(kWiden(LoadVector<Halves<Machine>>(b)));
  }
};

// Of whole numbers: sums of a block begin at zero in float32, which holds each of up to 1024
// products of int8 exactly, and are added to C, which is int32.
template <typename Machine>
struct Counting : Machine {
  static_assert(Machine::kBlockUnits <= 1024);
};
template <typename Machine>
constexpr bool kCounts = false;
template <typename Machine>
constexpr bool kCounts<Counting<Machine>> = true;

// Whether rows are multiplied as uint8, 128 more than they are: Machine::kShift is a unit of 128.
template <typename Machine, typename = void>
constexpr bool kShifts = false;
template <typename Machine>
constexpr bool kShifts<Machine, std::void_t<decltype(Machine::kShift)>> = true;

// The unit of row kRow of a panel, in all lanes. A Machine that multiplies by a lane of a vector of
// rows specialises this.
template <typename Machine, size_t kRow>
struct RowUnit {
  static Floats<Machine> Broadcast(const uint32_t* rows) { return Machine::Broadcast(rows + kRow); }
};
template <typename Machine, size_t kRow>
struct RowUnit<Counting<Machine>, kRow> : RowUnit<Machine, kRow> {};

// The product of one panel of rows and one of columns; its sums stay in registers.
template <typename Machine, typename Columns, size_t kRows, size_t kVectors>
class Tile {
 public:
  using Unit = typename Columns::Unit;

  static void Run(const uint32_t* a, const Unit* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches) {
    Run(a, b, units, first, c, ldc, fetches, std::make_index_sequence<kRows>(),
        std::make_index_sequence<kVectors>());
  }

 private:
  using Sum = Floats<Machine>;
  static constexpr size_t kLane = static_cast<size_t>(kLanes<Machine>);

  using Int = Vector<int32_t, Machine::kVectorBytes>;

  static Sum Begin(bool first, const float* c) {
    return first || kCounts<Machine> ? Sum{} : LoadVector<Sum>(c);
  }
  static Sum End(Sum sum, bool first, const float* c) {
    if constexpr (!kCounts<Machine>) return sum;
    const Int before = first ? Int{} : LoadVector<Int>(c);
    return reinterpret_cast<Sum>(__builtin_convertvector(sum, Int) + before);
  }
  static Sum Subtract(Sum sum, Sum shifted) {
    return reinterpret_cast<Sum>(reinterpret_cast<Units<Machine>>(sum) -
                                 reinterpret_cast<Units<Machine>>(shifted));
  }

  template <size_t kRow, size_t... kVector>
  static void Row(const uint32_t* a, const Sum (&b)[kVectors], Sum* sums,
                  std::index_sequence<kVector...>) {
    const Sum unit = RowUnit<Machine, kRow>::Broadcast(a);
    ((sums[kVector] = Machine::MultiplyAdd(unit, b[kVector], sums[kVector])), ...);
  }

  template <size_t... kRow, size_t... kVector>
  static void Run(const uint32_t* a, const Unit* b, int64_t units, bool first, float* c,
                  int64_t ldc, Fetches* fetches, std::index_sequence<kRow...>,
                  std::index_sequence<kVector...> vectors) {
    Sum sums[kRows][kVectors];
    Sum shifted[kVectors] = {};  // the sums of a row of 128
    const auto load = [&](Sum* row, const float* from) {
      ((row[kVector] = Begin(first, from + kVector * kLane)), ...);
    };
    const auto store = [&](Sum* row, float* to) {
      if constexpr (kShifts<Machine>) {
        ((row[kVector] = Subtract(row[kVector], shifted[kVector])), ...);
      }
      (Whole::Store(reinterpret_cast<char*>(to + kVector * kLane),
                    End(row[kVector], first, to + kVector * kLane)),
       ...);
    };
    (load(sums[kRow], c + static_cast<int64_t>(kRow) * ldc), ...);
    for (int64_t unit = 0; unit < units; unit += kStepUnits) {
      fetches->Step();
      const int64_t step = std::min(kStepUnits, units - unit);
      for (int64_t i = 0; i < step; ++i) {
        const Sum columns[] = {Columns::Load(b + kVector * kLane)...};
        (Row<kRow>(a, columns, sums[kRow], vectors), ...);
        if constexpr (kShifts<Machine>) {
          const Sum shift = Machine::Broadcast(&Machine::kShift);
          ((shifted[kVector] = Machine::MultiplyAdd(shift, columns[kVector], shifted[kVector])),
           ...);
        }
        a += Machine::kRowTile;
        b += Machine::kColumnTile;
      }
    }
    (store(sums[kRow], c + static_cast<int64_t>(kRow) * ldc), ...);
  }
};

template <typename Unit>
using TileFunction = void (*)(const uint32_t* a, const Unit* b, int64_t units, bool first, float* c,
                              int64_t ldc, Fetches* fetches);

// The tiles for every number of rows, from 1 on, and of vectors.
template <typename Machine, typename Columns>
class Tiles {
 public:
  using Function = TileFunction<typename Columns::Unit>;

  static Function Find(int64_t rows, int64_t vectors) {
    static constexpr Table kTable = All(std::make_index_sequence<Machine::kRowTile>());
    return kTable.tiles[rows - 1][vectors - 1];
  }

 private:
  static constexpr size_t kVectors = Machine::kColumnTile / kLanes<Machine>;
  struct Table {
    Function tiles[Machine::kRowTile][kVectors];
  };

  template <size_t kRows, size_t... kVector>
  static constexpr void Fill(Function (&row)[kVectors], std::index_sequence<kVector...>) {
    ((row[kVector] = &Tile<Machine, Columns, kRows, kVector + 1>::Run), ...);
  }
  template <size_t... kRow>
  static constexpr Table All(std::index_sequence<kRow...>) {
    Table table{};
    (Fill<kRow + 1>(table.tiles[kRow], std::make_index_sequence<kVectors>()), ...);
    return table;
  }
};

// A tile whose last vector is not full: computed on a copy of C.
template <typename Machine, typename Unit>
void RunEdge(TileFunction<Unit> tile, const uint32_t* a, const Unit* b, int64_t units, bool first,
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

template <typename Machine, typename Columns>
void MultiplyTile(const uint32_t* a, int64_t rows, const typename Columns::Unit* b, int64_t columns,
                  int64_t units, bool first, float* c, int64_t ldc, Fetches* fetches) {
  constexpr int64_t kLane = kLanes<Machine>;
  const auto tile = Tiles<Machine, Columns>::Find(rows, (columns + kLane - 1) / kLane);
  if (columns % kLane == 0) {
    tile(a, b, units, first, c, ldc, fetches);
  } else {
    RunEdge<Machine>(tile, a, b, units, first, c, ldc, rows, columns, fetches);
  }
}

// Some rows, whose panels stay in the second-level cache, times the block of the weight.
template <typename Machine, typename Columns>
void MultiplyRows(const uint32_t* a, int64_t rows, const typename Columns::Unit* b, int64_t columns,
                  int64_t units, bool first, float* c, int64_t ldc, Fetches* fetches) {
  for (int64_t j = 0; j < columns; j += Machine::kColumnTile) {
    const int64_t width = std::min(Machine::kColumnTile, columns - j);
    for (int64_t i = 0; i < rows; i += Machine::kRowTile) {
      const int64_t height = std::min(Machine::kRowTile, rows - i);
      const bool last = i + height == rows;
      fetches->sums =
          last ? Ahead(c + j + Machine::kColumnTile, Machine::kRowTile, width * 4, ldc * 4)
               : Ahead(c + (i + height) * ldc + j, Machine::kRowTile, width * 4, ldc * 4);
      MultiplyTile<Machine, Columns>(a + i * units, height, b + j * units, width, units, first,
                                     c + i * ldc + j, ldc, fetches);
    }
  }
}

// GemmKernels::multiply, and HalfWeight::multiply.
template <typename Machine, typename Columns>
void Multiply(const uint32_t* a, int64_t rows, const typename Columns::Unit* b, int64_t columns,
              int64_t units, bool first, float* c, int64_t ldc, const Meanwhile& meanwhile) {
  Fetches fetches;
  fetches.weight = FetchAhead(meanwhile.weight);
  const int64_t tiles = ((rows + Machine::kRowTile - 1) / Machine::kRowTile) *
                        ((columns + Machine::kColumnTile - 1) / Machine::kColumnTile);
  const int64_t steps = std::max<int64_t>(tiles * ((units + kStepUnits - 1) / kStepUnits), 1);
  fetches.weight_lines = LinesOfStep(fetches.weight, steps);
  for (int64_t row = 0; row < rows; row += kCachedRows) {
    const int64_t height = std::min(kCachedRows, rows - row);
    const int64_t next_height = std::min(kCachedRows, rows - row - height);
    fetches.rows = Ahead(a + (row + height) * units, 1, next_height * units * 4, 0);
    MultiplyRows<Machine, Columns>(a + row * units, height, b, columns, units, first, c + row * ldc,
                                   ldc, &fetches);
  }
}

// Pieces of rows, cached rows and a thread's rows must hold whole tiles.
template <typename Machine>
constexpr int64_t RowTile() {
  static_assert(kGemmRowUnit % Machine::kRowTile == 0 && kCachedRows % Machine::kRowTile == 0);
  return Machine::kRowTile;
}

// HalfWeight for `kWiden`; `kNarrow` undoes it.
template <typename Machine, Units<Machine> (*kWiden)(Halves<Machine>),
          Halves<Machine> (*kNarrow)(Units<Machine>)>
struct HalfLoops {
  static constexpr int64_t kLane = kLanes<Machine>;

  // Panels have whole vectors.
  static void Narrow(const uint32_t* units, int64_t count, uint16_t* halves) {
    for (int64_t i = 0; i < count; i += kLane) {
      Whole::Store(reinterpret_cast<char*>(halves + i),
                   kNarrow(LoadVector<Units<Machine>>(units + i)));
    }
  }
  static void Widen(const uint16_t* halves, int64_t count, uint32_t* units) {
    for (int64_t i = 0; i < count; i += kLane) {
      Whole::Store(reinterpret_cast<char*>(units + i),
                   kWiden(LoadVector<Halves<Machine>>(halves + i)));
    }
  }

  static constexpr HalfWeight kTable = {&Narrow, &Widen,
                                        &Multiply<Machine, HalfColumns<Machine, kWiden>>};
};

// GemmKernels::scale_tile.
template <typename Machine>
void ScaleTile(const TileScale& by, int64_t rows, int64_t columns, float* c, int64_t ldc) {
  using Values = Vector<float, Machine::kVectorBytes>;
  using Sums = Vector<uint32_t, Machine::kVectorBytes>;
  using Signed = Vector<int32_t, Machine::kVectorBytes>;
  for (int64_t row = 0; row < rows; ++row, c += ldc) {
    const auto scale = [&](int64_t at, auto access) {
      const auto load = [&](const auto* from, auto* type) {
        return access.template Load<std::remove_pointer_t<decltype(type)>>(
            reinterpret_cast<const char*>(from + at));
      };
      auto sums = load(c, static_cast<Sums*>(nullptr));
      if (by.bias != nullptr) sums += load(by.bias, static_cast<Sums*>(nullptr));
      auto values = __builtin_convertvector(reinterpret_cast<Signed>(sums), Values);
      values *= load(by.scale, static_cast<Values*>(nullptr));
      if (by.token_scale != nullptr) values *= by.token_scale[row];
      access.Store(reinterpret_cast<char*>(c + at), values);
    };
    int64_t at = 0;
    for (; columns - at >= kLanes<Machine>; at += kLanes<Machine>) scale(at, Whole{});
    if (at < columns) scale(at, Part{static_cast<size_t>(columns - at) * 4});
  }
}

// The table of kernels of one machine and one kind of unit, or another of rows.
template <typename Machine, typename Element, typename RowElement = Element>
constexpr GemmKernels GemmKernelsFor(const HalfWeight* half_weight) {
  return {RowTile<Machine>(),
          Machine::kColumnTile,
          Element::kElements,
          1,
          Machine::kBlockUnits,
          &PackTransposed<Machine, RowElement, Machine::kRowTile>,
          &PackTransposed<Machine, Element, Machine::kColumnTile>,
          &PackStraight<Machine, Element>,
          &Multiply<Machine, WholeColumns<Machine>>,
          half_weight,
          nullptr,
          nullptr};
}

// The table with what only int8 has, or what only floating point has.
template <typename Machine>
constexpr GemmKernels OfInt8(GemmKernels kernels) {
  kernels.scale_tile = &ScaleTile<Machine>;
  return kernels;
}
template <typename Machine, typename Rounding>
constexpr GemmKernels OfFloats(GemmKernels kernels) {
  kernels.pack_bytes = &PackBytes<Machine, Rounding>;
  return kernels;
}

// int8 for a Machine that multiplies float32.
template <typename Machine>
const GemmKernels* CountingKernelsFor() {
  using Counted = Counting<Machine>;
  static constexpr GemmKernels kKernels =
      OfInt8<Machine>(GemmKernelsFor<Counted, ByteUnits<Counted>>(
          &HalfLoops<Counted, &WidenBFloat16<Counted>, &NarrowBFloat16<Counted>>::kTable));
  return &kKernels;
}

// int8 for a Machine that multiplies pairs of int16.
template <typename Machine>
const GemmKernels* BytePairKernelsFor() {
  using Element = BytePairUnits<Machine>;
  static constexpr GemmKernels kKernels = OfInt8<Machine>(GemmKernelsFor<Machine, Element>(
      &HalfLoops<Machine, &Element::Widen, &Element::Narrow>::kTable));
  return &kKernels;
}

// For a Machine that multiplies float32.
template <typename Machine>
const GemmKernels* Float32KernelsFor(DType dtype) {
  constexpr auto kWidenBFloat16 = &WidenBFloat16<Machine>;
  constexpr auto kWidenFloat16 = &Machine::WidenFloat16;
  static constexpr GemmKernels kFloat32 = OfFloats<Machine, Float32Rounding<Machine>>(
      GemmKernelsFor<Machine, Float32Units<Machine>>(nullptr));
  static constexpr GemmKernels kBFloat16 = OfFloats<Machine, BFloat16Rounding<Machine>>(
      GemmKernelsFor<Machine, WidenedUnits<Machine, kWidenBFloat16>>(
          &HalfLoops<Machine, kWidenBFloat16, &NarrowBFloat16<Machine>>::kTable));
  static constexpr GemmKernels kFloat16 = OfFloats<Machine, Float16Rounding<Machine>>(
      GemmKernelsFor<Machine, WidenedUnits<Machine, kWidenFloat16>>(
          &HalfLoops<Machine, kWidenFloat16, &Machine::NarrowFloat16>::kTable));
  if (dtype == DType::kFloat32) return &kFloat32;
  if (dtype == DType::kBFloat16) return &kBFloat16;
  if (dtype == DType::kFloat16) return &kFloat16;
  return nullptr;
}

}  // namespace
}  // namespace collops::kernels
