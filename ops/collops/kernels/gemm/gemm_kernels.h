#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

struct TileScale;  // gemm.h

// A part of an int8 weight: `columns` columns of it as [k, n], and k rows.
struct ByteWeight {
  const int8_t* first;
  int64_t ld;
  bool transposed;  // a column's numbers lie side by side
  int64_t k;
  int64_t columns;
  // As in WeightScale (gemm.h), from the first column and the group of the first row on. From group
  // to group they are scale_ld apart; the first has `group_left` rows left.
  const float* scale;
  const float* offset;
  int64_t scale_ld;
  int64_t group_k;
  int64_t group_left;
};

// Memory to prefetch: rows of row_bytes bytes, ld_bytes apart.
struct NextMemory {
  const void* first = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t ld_bytes = 0;
};

// Packs a panel of the weight in pieces, while another is multiplied.
class PanelPacking {
 public:
  virtual void PackPiece() = 0;
  int64_t steps_left = 0;  // of the product before the next piece

 protected:
  ~PanelPacking() = default;
};

// What a product does besides: it fetches the weight that comes next. Kernels with cached_rows also
// fetch the panels of rows that come next, and pack.
struct Meanwhile {
  NextMemory weight = {};
  NextMemory rows = {};
  PanelPacking* packing = nullptr;
};

// A weight that is kept packed as 16-bit numbers, which products widen to float32: half the memory
// to read.
struct HalfWeight {
  // Panels of units, each made from a 16-bit number, to these numbers in the same order, and back.
  void (*narrow)(const uint32_t* units, int64_t count, uint16_t* halves);
  void (*widen)(const uint16_t* halves, int64_t count, uint32_t* units);

  // As GemmKernels::multiply, and widens in passing.
  void (*multiply)(const uint32_t* a, int64_t rows, const uint16_t* b, int64_t columns,
                   int64_t units, bool first, float* c, int64_t ldc, const Meanwhile& meanwhile);
};

// The kernels of a product for one dtype on one instruction set. Panels hold 32-bit units: one
// float32, or neighbours in k, two of bfloat16 or int16 or four of int8. A panel is made from
// row_tile rows of A or from column_tile columns of the weight, and is [units of k][tile]. Only
// `multiply` knows the order inside panels of rows.
struct GemmKernels {
  int64_t row_tile;
  int64_t column_tile;
  int64_t k_per_unit;
  int64_t unit_step;  // blocks of k are padded with zeros to a multiple of this many units
  // Units of k in a block, a multiple of unit_step. 256 of them, with a strip's columns, are about
  // 400 KiB of the weight, which stay in a core's second-level cache while the rows of A pass by.
  int64_t block_units;

  // source[rows, k], whose row is a panel's column, into a panel of row_tile or of column_tile
  // columns; missing rows and what is missing of the last unit_step become zero.
  void (*pack_rows)(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel);
  void (*pack_columns)(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel);

  // source[k, columns] into panels of column_tile columns, `panel_units` units apart, padded in the
  // same way.
  void (*pack_straight)(const void* source, int64_t ld, int64_t k, int64_t columns,
                        int64_t panel_units, uint32_t* panels);

  // c[rows, columns] = (first ? 0 : c) + a * b: panels of row_tile rows and of column_tile columns,
  // each of `units` units. Of int8, c is int32.
  void (*multiply)(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                   int64_t units, bool first, float* c, int64_t ldc, const Meanwhile& meanwhile);

  const HalfWeight* half_weight;  // null if a packed weight is kept in units

  // Of int8: c becomes what it stands for (TileScale, whose arrays begin at c).
  void (*scale_tile)(const TileScale& scale, int64_t rows, int64_t columns, float* c, int64_t ldc);

  // Of floating point: as pack_straight, of an int8 weight, whose numbers become elements of the
  // rows' dtype on the way (WeightScale).
  void (*pack_bytes)(const ByteWeight& weight, int64_t panel_units, uint32_t* panels);

  // Of kernels that multiply so fast that packing counts: rows that are multiplied by one panel of
  // the weight after the other, and stay in a second-level cache meanwhile. 0: any rows by a block.
  int64_t cached_rows = 0;

  // Before a thread's calls of `multiply`, and after them; null: nothing to do.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

// The kernels of one instruction set for float32, bfloat16, float16 and int8; null for other
// dtypes. Avx2 and Avx512 exist on x86-64 only, Neon on arm64, and run where CanRun() of isa.h says
// so.
const GemmKernels* PortableGemmKernels(DType dtype);
const GemmKernels* NeonGemmKernels(DType dtype);
const GemmKernels* Avx2GemmKernels(DType dtype);
const GemmKernels* Avx512GemmKernels(DType dtype);

// The portable ones, but each product and its sum are rounded once: slow without an instruction for
// it. Not for int8.
const GemmKernels* PortableFusedGemmKernels(DType dtype);

// For bfloat16, where Has(Extension::kAvx512BFloat16) (isa.h).
const GemmKernels* Avx512BFloat16GemmKernels();

// For bfloat16, where Isa::kAmx can run.
const GemmKernels* AmxBFloat16GemmKernels();

// For int8, where Has(Extension::kAmxInt8), kAvx512Vnni and kAvxVnni.
const GemmKernels* AmxInt8GemmKernels();
const GemmKernels* Avx512VnniGemmKernels();
const GemmKernels* AvxVnniGemmKernels();

// For bfloat16, where Has(Extension::kBfmmla).
const GemmKernels* BfmmlaGemmKernels();

// For int8, where Has(Extension::kSmmla) and kDotProduct.
const GemmKernels* SmmlaGemmKernels();
const GemmKernels* SdotGemmKernels();

}  // namespace collops::kernels
