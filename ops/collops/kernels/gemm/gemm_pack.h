#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "collops/kernels/copy.h"
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
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(row_ + done_, 0, 2);
      done_ += kLineBytes;
      if (done_ >= row_bytes_) {
        done_ = 0;
        row_ += ld_bytes_;
        --rows_;
      }
    }
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

// In two steps, which are an instruction each: of one step gcc 12 makes one per byte.
template <typename Machine>
Vector<int32_t, Machine::kVectorBytes> WidenBytes(Vector<int8_t, Machine::kVectorBytes / 4> bytes) {
  const auto shorts = __builtin_convertvector(bytes, Vector<int16_t, Machine::kVectorBytes / 2>);
  return __builtin_convertvector(shorts, Vector<int32_t, Machine::kVectorBytes>);
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
template <typename Machine>
Float<Machine> RoundedToFloat32(Float<Machine> value) {
  return value;
}
template <typename Machine>
Halves<Machine> RoundedToBFloat16(Float<Machine> value) {
  using Lane = VectorLane<Machine::kVectorBytes>;
  return __builtin_convertvector(BFloat16InUpperHalf<Lane>(value) >> 16, Halves<Machine>);
}
template <typename Machine>
Halves<Machine> RoundedToFloat16(Float<Machine> value) {
  return Machine::NarrowFloat16(reinterpret_cast<Units<Machine>>(value));
}

// GemmKernels::widen_weight.
template <typename Machine, auto kRound>
void WidenWeight(const int8_t* weight, int64_t count, const float* scale, const float* offset,
                 int64_t step, void* elements) {
  using Values = Float<Machine>;
  using Bytes = Vector<int8_t, Machine::kVectorBytes / 4>;
  using Element = decltype(kRound(Values{}));
  constexpr int64_t kLane = kLanes<Machine>;
  constexpr auto kItem = static_cast<int64_t>(sizeof(Element)) / kLane;
  const auto* const from = reinterpret_cast<const char*>(weight);
  char* const to = static_cast<char*>(elements);
  const auto widen = [&](int64_t at, auto bytes, auto values, auto stored) {
    const auto load = [&](const float* by) {
      if (step == 0) return Values{} + *by;
      return values.template Load<Values>(reinterpret_cast<const char*>(by + at));
    };
    const auto whole = WidenBytes<Machine>(bytes.template Load<Bytes>(from + at));
    Values value = __builtin_convertvector(whole, Values);
    if (offset != nullptr) value += load(offset);
    stored.Store(to + at * kItem, kRound(value * load(scale)));
  };
  int64_t at = 0;
  for (; count - at >= kLane; at += kLane) widen(at, Whole{}, Whole{}, Whole{});
  const auto left = static_cast<size_t>(count - at);
  if (left == 0) return;
  widen(at, Part{left}, Part{left * 4}, Part{left * static_cast<size_t>(kItem)});
}

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
  for (int64_t i = 0; i < kTile; i += kSide) {
    const char* const row = static_cast<const char*>(source) + i * ld_bytes;
    uint32_t* out = panel + i;
    int64_t done = 0;
    if (rows - i >= kRows) {
      for (; row_bytes - done >= kBytes; done += kBytes, out += kSide * kTile) {
        for (int64_t j = 0; j < kRows; ++j) Prefetch(row + j * ld_bytes + done + kRowAhead);
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

}  // namespace
}  // namespace collops::kernels
