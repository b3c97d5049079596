#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "collops/kernels/copy.h"
#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/half.h"
#include "collops/kernels/vector.h"

// Packing for a product, and what is fetched ahead meanwhile. In an unnamed namespace for the
// reason given in vector.h. A Machine has vectors of kVectorBytes, transposes a square of units and
// extends 16-bit numbers with zeros; if a panel of rows is narrower than a square, it stores that
// many transposed rows.
namespace collops::kernels {
namespace {

// Prefetches `rows` rows of `row_bytes` bytes, `ld_bytes` apart, a few lines at a time, while other
// work is computed. Prefetching does not read, so rows may end anywhere.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* first, int64_t rows, int64_t row_bytes, int64_t ld_bytes)
      : row_(static_cast<const char*>(first)),
        rows_(row_bytes > 0 ? rows : 0),
        row_bytes_(row_bytes),
        ld_bytes_(ld_bytes) {}

  // The number of lines in all, so that a caller can spread them.
  int64_t num_lines() const { return rows_ * ((row_bytes_ + kLineBytes - 1) / kLineBytes); }

  [[gnu::always_inline]] void Fetch(int64_t lines) {
    // In registers: the compiler takes a prefetch for a use of all memory.
    const char* row = row_;
    int64_t rows = rows_;
    int64_t done = done_;
    for (; lines > 0 && rows > 0; --lines) {
      __builtin_prefetch(row + done, 0, 2);
      done += kLineBytes;
      if (done >= row_bytes_) {
        done = 0;
        row += ld_bytes_;
        --rows;
      }
    }
    row_ = row;
    rows_ = rows;
    done_ = done;
  }

 private:
  const char* row_ = nullptr;
  int64_t rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t ld_bytes_ = 0;
  int64_t done_ = 0;
};

// What a tile prefetches for later tiles, some at each of its steps.
struct Fetches {
  Ahead weight;  // the block of the weight that is packed next
  Ahead rows;    // panels of the rows that are multiplied next
  Ahead sums;    // where the next tile's sums are stored
  int64_t weight_lines = 0;

  [[gnu::always_inline]] void Step() {
    weight.Fetch(weight_lines);
    rows.Fetch(1);
    sums.Fetch(3);
  }
};

inline Ahead FetchAhead(const NextMemory& next) {
  return {next.first, next.rows, next.row_bytes, next.ld_bytes};
}

// Lines that each of `steps` steps fetches.
inline int64_t LinesOfStep(const Ahead& ahead, int64_t steps) {
  return (ahead.num_lines() + steps - 1) / steps;
}

template <typename Machine>
using Units = Vector<uint32_t, Machine::kVectorBytes>;
template <typename Machine>
using Halves = Vector<uint16_t, Machine::kVectorBytes / 2>;
template <typename Machine>
using Shorts = Vector<int16_t, Machine::kVectorBytes>;
template <typename Machine>
constexpr int64_t kLanes = Machine::kVectorBytes / 4;

// For short rows the hardware prefetches too little. Measured: 512 bytes when 8 or 16 rows are read
// side by side, 8 KiB when one row is read after the other.
constexpr int64_t kRowAhead = 512;
constexpr int64_t kBytesAhead = 8 << 10;

// Into all caches, though it is read once: rows whose distance is a power of two share so few
// places of the first cache that some leave it before they are read, and then come from the second.
// With 4096 bytes and prefetches past the second cache a pass over memory took 2.5 times as long.
// An address without memory does nothing.
inline void Prefetch(const char* address) {
  __builtin_prefetch(address, 0, 3);
}

inline void PrefetchRow(const char* row, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += kLineBytes) Prefetch(row + byte);
}

template <typename V>
V LoadVector(const void* source) {
  return Whole::Load<V>(static_cast<const char*>(source));
}

// 4 x 4 units.
inline void TransposeFour(Vector<uint32_t, 16> (&rows)[4]) {
  using Bits = Vector<uint32_t, 16>;
  const Bits a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Bits b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Bits c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Bits d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// A vector of units is made from `kBytes` of memory and `kElements` of k. FromRow takes neighbours
// in k; FromColumns takes neighbours in n, from `kElements` adjacent rows.
template <typename Machine>
struct Float32Units {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kElementBytes = 4;
  static constexpr int64_t kElements = 1;
  static Units<Machine> FromRow(const char* row) { return LoadVector<Units<Machine>>(row); }
  static Units<Machine> FromColumns(const char* const* rows) { return FromRow(rows[0]); }
};

// 16-bit numbers that are widened to float32.
template <typename Machine, Units<Machine> (*kWiden)(Halves<Machine>)>
struct WidenedUnits {
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kElementBytes = 2;
  static constexpr int64_t kElements = 1;
  static Units<Machine> FromRow(const char* row) {
    return kWiden(LoadVector<Halves<Machine>>(row));
  }
  static Units<Machine> FromColumns(const char* const* rows) { return FromRow(rows[0]); }
};

// Pairs of bfloat16, the first in the lower half: as they lie in a row.
template <typename Machine>
struct PairUnits {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kElementBytes = 2;
  static constexpr int64_t kElements = 2;
  static Units<Machine> FromRow(const char* row) { return LoadVector<Units<Machine>>(row); }
  static Units<Machine> FromColumns(const char* const* rows) {
    return Machine::ZeroExtend(LoadVector<Halves<Machine>>(rows[0])) |
           Machine::ZeroExtend(LoadVector<Halves<Machine>>(rows[1])) << 16;
  }
};

// Where it is not an instruction that is named, in two steps: of one step gcc 12 makes one
// instruction for each byte.
template <typename Machine>
Vector<int32_t, Machine::kVectorBytes> WidenBytes(Vector<int8_t, Machine::kVectorBytes / 4> bytes) {
  using Ints = Vector<int32_t, Machine::kVectorBytes>;
#if defined(__AVX512F__)
  if constexpr (Machine::kVectorBytes == 64) {
    return reinterpret_cast<Ints>(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)));
  }
#elif defined(__AVX2__)
  if constexpr (Machine::kVectorBytes == 32) {
    return reinterpret_cast<Ints>(
        _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(reinterpret_cast<int64_t>(bytes))));
  }
#endif
  const auto shorts = __builtin_convertvector(bytes, Vector<int16_t, Machine::kVectorBytes / 2>);
  return __builtin_convertvector(shorts, Ints);
}

// int8 as float32.
template <typename Machine>
struct ByteUnits {
  static constexpr int64_t kBytes = 1;
  static constexpr int64_t kElementBytes = 1;
  static constexpr int64_t kElements = 1;
  static Units<Machine> FromRow(const char* row) {
    using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
    const auto wide = WidenBytes<Machine>(LoadVector<Bytes>(row));
    return reinterpret_cast<Units<Machine>>(
        __builtin_convertvector(wide, Vector<float, Machine::kVectorBytes>));
  }
  static Units<Machine> FromColumns(const char* const* rows) { return FromRow(rows[0]); }
};

// Pairs of int8 as pairs of int16, the first in the lower half.
template <typename Machine>
struct BytePairUnits {
  static constexpr int64_t kBytes = 2;
  static constexpr int64_t kElementBytes = 1;
  static constexpr int64_t kElements = 2;
  static Units<Machine> Widen(Halves<Machine> pairs) {
    using Bytes = Vector<int8_t, Machine::kVectorBytes / 2>;
    return reinterpret_cast<Units<Machine>>(
        __builtin_convertvector(reinterpret_cast<Bytes>(pairs), Shorts<Machine>));
  }
  static Halves<Machine> Narrow(Units<Machine> units) {
    using Bytes = Vector<int8_t, Machine::kVectorBytes / 2>;
    return reinterpret_cast<Halves<Machine>>(
        __builtin_convertvector(reinterpret_cast<Shorts<Machine>>(units), Bytes));
  }
  static Units<Machine> FromRow(const char* row) { return Widen(LoadVector<Halves<Machine>>(row)); }
  static Units<Machine> FromColumns(const char* const* rows) {
    using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
    const auto low = WidenBytes<Machine>(LoadVector<Bytes>(rows[0]));
    const auto high = WidenBytes<Machine>(LoadVector<Bytes>(rows[1]));
    return (reinterpret_cast<Units<Machine>>(low) & 0xffffu) |
           reinterpret_cast<Units<Machine>>(high) << 16;
  }
};

// Four int8, the first in the lowest byte: as they lie in a row. kFlip makes them uint8, 128 more.
template <typename Machine, uint32_t kFlip = 0>
struct ByteQuadUnits {
  static constexpr int64_t kBytes = 4;
  static constexpr int64_t kElementBytes = 1;
  static constexpr int64_t kElements = 4;
  static Units<Machine> FromRow(const char* row) { return LoadVector<Units<Machine>>(row) ^ kFlip; }
  static Units<Machine> FromColumns(const char* const* rows) {
    using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
    Units<Machine> units{};
    for (int i = 0; i < 4; ++i) {
      const auto wide = WidenBytes<Machine>(LoadVector<Bytes>(rows[i]));
      units |= (reinterpret_cast<Units<Machine>>(wide) & 0xffu) << 8 * i;
    }
    return units ^ kFlip;
  }
};

template <typename Machine>
Units<Machine> WidenBFloat16(Halves<Machine> halves) {
  return Machine::ZeroExtend(halves) << 16;
}
template <typename Machine>
Halves<Machine> NarrowBFloat16(Units<Machine> units) {
  return __builtin_convertvector(units >> 16, Halves<Machine>);
}

// A vector of float32 as elements of a type, rounded to nearest even.
template <typename Machine>
using Float = Vector<float, Machine::kVectorBytes>;

// What a unit is made of when an int8 weight is widened: the numbers of kElements neighbours in k,
// rounded to the rows' dtype.
template <typename Machine>
struct Float32Rounding {
  static constexpr int64_t kElements = 1;
  static Units<Machine> Round(const Float<Machine>* values) {
    return reinterpret_cast<Units<Machine>>(values[0]);
  }
};
template <typename Machine>
struct Float16Rounding {
  static constexpr int64_t kElements = 1;
  static Units<Machine> Round(const Float<Machine>* values) {
    const auto bits = reinterpret_cast<Units<Machine>>(values[0]);
    return Machine::WidenFloat16(Machine::NarrowFloat16(bits));
  }
};
template <typename Machine>
struct BFloat16Rounding {
  static constexpr int64_t kElements = 1;
  static Units<Machine> Round(const Float<Machine>* values) {
    using Lane = VectorLane<Machine::kVectorBytes>;
    return BFloat16InUpperHalf<Lane>(values[0]) & 0xffff0000u;
  }
};
template <typename Machine>
struct PairRounding {
  static constexpr int64_t kElements = 2;
  static Units<Machine> Round(const Float<Machine>* values) {
    using Lane = VectorLane<Machine::kVectorBytes>;
    return BFloat16InUpperHalf<Lane>(values[0]) >> 16 |
           (BFloat16InUpperHalf<Lane>(values[1]) & 0xffff0000u);
  }
};

// kLanes units of each of kRows rows, transposed into a panel of kTile columns, of which these are
// the first kRows.
template <typename Machine, typename Element, int64_t kTile>
void PackSquare(const char* source, int64_t ld_bytes, uint32_t* out) {
  constexpr size_t kSide = static_cast<size_t>(kLanes<Machine>);
  constexpr size_t kRows = std::min(kSide, static_cast<size_t>(kTile));
  Units<Machine> rows[kRows];
  for (size_t i = 0; i < kRows; ++i, source += ld_bytes) rows[i] = Element::FromRow(source);
  if constexpr (kRows < kSide) {
    Machine::StoreTransposed(rows, out);
  } else {
    Machine::Transpose(rows);
    for (size_t i = 0; i < kSide; ++i) std::memcpy(out + i * kTile, &rows[i], sizeof(rows[i]));
  }
}

// As PackSquare(), for fewer rows or bytes in a row; the rest becomes zero.
template <typename Machine, typename Element, int64_t kTile>
void PackPart(const char* source, int64_t ld_bytes, int64_t rows, int64_t row_bytes,
              uint32_t* out) {
  constexpr int64_t kSide = kLanes<Machine>;
  constexpr int64_t kRows = std::min(kSide, kTile);
  constexpr int64_t kBytes = kSide * Element::kBytes;
  char whole[static_cast<size_t>(kRows * kBytes)] = {};
  const int64_t bytes = std::min(row_bytes, kBytes);
  for (int64_t i = 0; i < std::min(rows, kRows); ++i) {
    std::memcpy(whole + i * kBytes, source + i * ld_bytes, static_cast<size_t>(bytes));
  }
  uint32_t square[static_cast<size_t>(kSide * kTile)];
  PackSquare<Machine, Element, kTile>(whole, kBytes, square);
  const int64_t units = (bytes + Element::kBytes - 1) / Element::kBytes;
  for (int64_t j = 0; j < units; ++j) {
    std::memcpy(out + j * kTile, square + j * kTile, kRows * sizeof(uint32_t));
  }
}

// GemmKernels::pack_rows and pack_columns.
template <typename Machine, typename Element, int64_t kTile>
void PackTransposed(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel) {
  constexpr int64_t kSide = kLanes<Machine>;
  constexpr int64_t kRows = std::min(kSide, kTile);
  constexpr int64_t kBytes = kSide * Element::kBytes;
  const int64_t ld_bytes = ld * Element::kElementBytes;
  const int64_t row_bytes = k * Element::kElementBytes;
  // Who packs a square at a time has fetched it.
  const bool fetches = row_bytes > kBytes;
  for (int64_t i = 0; i < kTile; i += kSide) {
    const char* const row = static_cast<const char*>(source) + i * ld_bytes;
    uint32_t* out = panel + i;
    int64_t done = 0;
    if (rows - i >= kRows) {
      for (; row_bytes - done >= kBytes; done += kBytes, out += kSide * kTile) {
        for (int64_t j = 0; fetches && j < kRows; ++j) {
          Prefetch(row + j * ld_bytes + done + kRowAhead);
        }
        PackSquare<Machine, Element, kTile>(row + done, ld_bytes, out);
      }
    }
    for (; done < row_bytes; done += kBytes, out += kSide * kTile) {
      PackPart<Machine, Element, kTile>(row + done, ld_bytes, rows - i, row_bytes - done, out);
    }
  }
}

// The rows of one unit of k of one panel.
template <typename Element>
struct UnitRows {
  const char* at[static_cast<size_t>(Element::kElements)];
};

// One unit of k of one panel.
template <typename Machine, typename Element>
void PackUnit(UnitRows<Element> rows, uint32_t* out) {
  constexpr int64_t kSide = kLanes<Machine>;
  for (int64_t j = 0; j < Machine::kColumnTile; j += kSide) {
    const Units<Machine> units = Element::FromColumns(rows.at);
    std::memcpy(out + j, &units, sizeof(units));
    for (const char*& row : rows.at) row += kSide * Element::kElementBytes;
  }
}

// As PackUnit(), for a panel with fewer columns; the rest becomes zero.
template <typename Machine, typename Element>
void PackPartOfUnit(const UnitRows<Element>& rows, int64_t columns, uint32_t* out) {
  constexpr size_t kRowBytes = static_cast<size_t>(Machine::kColumnTile * Element::kElementBytes);
  char whole[static_cast<size_t>(Element::kElements)][kRowBytes] = {};
  UnitRows<Element> copied;
  for (size_t i = 0; i < std::size(whole); ++i) {
    std::memcpy(whole[i], rows.at[i], static_cast<size_t>(columns * Element::kElementBytes));
    copied.at[i] = whole[i];
  }
  PackUnit<Machine, Element>(copied, out);
}

// GemmKernels::pack_straight: row by row, as the weight lies in memory, into all panels.
template <typename Machine, typename Element>
void PackStraight(const void* source, int64_t ld, int64_t k, int64_t columns, int64_t panel_units,
                  uint32_t* panels) {
  static constexpr char kZeros[Machine::kColumnTile * Element::kElementBytes] = {};
  const int64_t ld_bytes = ld * Element::kElementBytes;
  const int64_t row_bytes = columns * Element::kElementBytes;
  const int64_t rows_ahead = kBytesAhead / row_bytes;
  for (int64_t at = 0; at < k; at += Element::kElements) {
    const char* const first = static_cast<const char*>(source) + at * ld_bytes;
    for (int64_t row = 0; row < Element::kElements; ++row) {
      PrefetchRow(first + (rows_ahead + row) * ld_bytes, row_bytes);
    }
    uint32_t* out = panels + at / Element::kElements * Machine::kColumnTile;
    for (int64_t j = 0; j < columns; j += Machine::kColumnTile, out += panel_units) {
      const char* const here = first + j * Element::kElementBytes;
      UnitRows<Element> rows;
      for (int64_t i = 0; i < Element::kElements; ++i) {
        rows.at[i] = at + i < k ? here + i * ld_bytes : kZeros;
      }
      if (columns - j >= Machine::kColumnTile) {
        PackUnit<Machine, Element>(rows, out);
      } else {
        PackPartOfUnit<Machine, Element>(rows, columns - j, out);
      }
    }
  }
}

// Where the units of a panel of the weight are, from a column on: a vector of columns of a unit.
template <typename Machine>
struct PanelUnits {
  static constexpr int64_t kStep = 1;  // units from a column to the next
  static void Store(uint32_t* panel, int64_t unit, Units<Machine> units) {
    std::memcpy(panel + unit * Machine::kColumnTile, &units, sizeof(units));
  }
};

// The scales of an int8 weight, one row of it as [k, n] after the other.
class ScaleRows {
 public:
  struct Row {
    const float* scale = nullptr;
    const float* offset = nullptr;
  };

  explicit ScaleRows(const ByteWeight& weight)
      : weight_(weight), row_{weight.scale, weight.offset}, left_(weight.group_left) {}

  // Of the next rows, if all of them have the same.
  [[gnu::always_inline]] bool Next(int64_t rows, Row* row) {
    if (left_ == 0) {
      left_ = weight_.group_k;
      row_.scale += weight_.scale_ld;
      if (row_.offset != nullptr) row_.offset += weight_.scale_ld;
    }
    if (left_ < rows) return false;
    left_ -= rows;
    *row = row_;
    return true;
  }

 private:
  const ByteWeight& weight_;
  Row row_;
  int64_t left_;
};

// GemmKernels::pack_bytes, of a weight with offsets or without: a test for each vector would cost
// as much as the conversion.
template <typename Machine, typename Rounding, bool kHasOffset>
class BytePacker {
 public:
  static void Run(const ByteWeight& weight, int64_t panel_units, uint32_t* panels) {
    if (!weight.transposed) return Straight(weight, panel_units, panels);
    for (int64_t j = 0; j < weight.columns; j += kLane) {
      ScaleRows scales(weight);
      uint32_t* const panel =
          panels + j / kTile * panel_units + PanelUnits<Machine>::kStep * (j % kTile);
      for (int64_t k = 0; k < weight.k; k += kSquare) {
        const int8_t* const row = weight.first + j * weight.ld + k;
        const int64_t size = std::min(kSquare, weight.k - k);
        ScaleRows::Row by;
        if (size == kSquare && weight.columns - j >= kLane && scales.Next(size, &by)) {
          Square(weight, row, Scaling::Load(by, j, Whole{}), k, panel);
        } else {
          PartOfSquare(weight, row, j, size, k, &scales, panel);
        }
      }
    }
  }

 private:
  using Ints = Vector<int32_t, Machine::kVectorBytes>;
  using Values = Float<Machine>;
  using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
  static constexpr int64_t kLane = kLanes<Machine>;
  static constexpr int64_t kTile = Machine::kColumnTile;
  static constexpr int64_t kElements = Rounding::kElements;
  static constexpr int64_t kSquare = 4 * kLane;  // bytes of a vector

  // (number + offset) * scale, for a vector of columns.
  struct Scaling {
    Values scale;
    Values offset;  // zero if there is none

    template <typename Access>
    [[gnu::always_inline]] static Scaling Load(ScaleRows::Row row, int64_t column, Access access) {
      const auto load = [&](const float* from) {
        return access.template Load<Values>(reinterpret_cast<const char*>(from + column));
      };
      if constexpr (kHasOffset) return {load(row.scale), load(row.offset)};
      return {load(row.scale), Values{}};
    }
    [[gnu::always_inline]] Values Apply(Ints numbers) const {
      auto values = __builtin_convertvector(numbers, Values);
      if constexpr (kHasOffset) values += offset;
      return values * scale;
    }
  };

  // A vector of columns and kSquare rows of k of a transposed weight, which have the same scales.
  static void Square(const ByteWeight& weight, const int8_t* row, const Scaling& scaling, int64_t k,
                     uint32_t* panel) {
    Units<Machine> quads[size_t{kLane}];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLane; ++i) {
      quads[i] = LoadVector<Units<Machine>>(row + i * weight.ld);
      Prefetch(reinterpret_cast<const char*>(row) + i * weight.ld + kRowAhead);
    }
    Machine::Transpose(quads);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLane; ++i) {
      Quad(quads[i], k + 4 * i, panel, 4, [&] { return scaling; });
    }
  }

  // Of fewer columns or rows, or with several scales.
  static void PartOfSquare(const ByteWeight& weight, const int8_t* row, int64_t column,
                           int64_t size, int64_t k, ScaleRows* scales, uint32_t* panel) {
    const int64_t columns = std::min(kLane, weight.columns - column);
    const Part part{static_cast<size_t>(columns) * 4};
    Units<Machine> quads[size_t{kLane}] = {};
    for (int64_t i = 0; i < columns; ++i, row += weight.ld) {
      std::memcpy(&quads[i], row, static_cast<size_t>(size));
    }
    Machine::Transpose(quads);
    for (int64_t i = 0; 4 * i < size; ++i) {
      Quad(quads[i], k + 4 * i, panel, size - 4 * i, [&] {
        ScaleRows::Row by;
        scales->Next(1, &by);
        return Scaling::Load(by, column, part);
      });
    }
  }

  // Four rows of k, or what there is of them.
  template <typename ScalingOf>
  [[gnu::always_inline]] static void Quad(Units<Machine> quad, int64_t k, uint32_t* panel,
                                          int64_t rows, const ScalingOf& scaling) {
    const auto numbers = reinterpret_cast<Ints>(quad);
#pragma GCC unroll 4
    for (int64_t byte = 0; byte < 4; byte += kElements) {
      if (byte >= rows) return;
      Values values[size_t{kElements}] = {};
#pragma GCC unroll 2
      for (int64_t i = byte; i < byte + kElements; ++i) {
        if (i < rows) values[i - byte] = scaling().Apply(numbers << (24 - 8 * i) >> 24);
      }
      PanelUnits<Machine>::Store(panel, (k + byte) / kElements, Rounding::Round(values));
    }
  }

  static void Straight(const ByteWeight& weight, int64_t panel_units, uint32_t* panels) {
    ScaleRows scales(weight);
    const int64_t rows_ahead = kBytesAhead / weight.columns;
    int64_t at = 0;
    for (; weight.k - at >= kElements; at += kElements) {
      Unit<kElements>(weight, at, rows_ahead, &scales, panel_units, panels);
    }
    if (at < weight.k) Unit<1>(weight, at, rows_ahead, &scales, panel_units, panels);
  }

  // kRows rows of k as one unit of all panels.
  template <int64_t kRows>
  static void Unit(const ByteWeight& weight, int64_t at, int64_t rows_ahead, ScaleRows* scales,
                   int64_t panel_units, uint32_t* panels) {
    const auto* const first = reinterpret_cast<const char*>(weight.first) + at * weight.ld;
    ScaleRows::Row by[static_cast<size_t>(kRows)];
    for (int64_t i = 0; i < kRows; ++i) {
      scales->Next(1, &by[i]);
      PrefetchRow(first + (rows_ahead + i) * weight.ld, weight.columns);
    }
    const auto pack = [&](int64_t column, auto bytes, auto floats, uint32_t* panel) {
      Values values[size_t{kElements}] = {};
      for (int64_t i = 0; i < kRows; ++i) {
        const Bytes numbers = bytes.template Load<Bytes>(first + i * weight.ld + column);
        values[i] = Scaling::Load(by[i], column, floats).Apply(WidenBytes<Machine>(numbers));
      }
      PanelUnits<Machine>::Store(panel, at / kElements, Rounding::Round(values));
    };
    for (int64_t j = 0; j < weight.columns; j += kTile, panels += panel_units) {
      const int64_t width = std::min(kTile, weight.columns - j);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kTile; v += kLane) {
        uint32_t* const panel = panels + PanelUnits<Machine>::kStep * v;
        if (width - v >= kLane) {
          pack(j + v, Whole{}, Whole{}, panel);
        } else if (v < width) {
          const auto left = static_cast<size_t>(width - v);
          pack(j + v, Part{left}, Part{left * 4}, panel);
        }
      }
    }
  }
};

template <typename Machine, typename Rounding>
void PackBytes(const ByteWeight& weight, int64_t panel_units, uint32_t* panels) {
  const auto pack = weight.offset == nullptr ? &BytePacker<Machine, Rounding, false>::Run
                                             : &BytePacker<Machine, Rounding, true>::Run;
  pack(weight, panel_units, panels);
}

}  // namespace
}  // namespace collops::kernels
