#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace collops::kernels {

// Memory to prefetch: rows of row_bytes bytes, ld_bytes apart.
struct NextWeight {
  const void* first = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t ld_bytes = 0;
};

// The kernels of a product for one dtype on one instruction set. Panels hold 32-bit units: one
// float32, or two neighbours in k of bfloat16. A panel is [units of k][tile], made from rows of A
// or from columns of the weight.
struct GemmKernels {
  int64_t row_tile;
  int64_t column_tile;
  int64_t k_per_unit;

  // source[rows, k], whose row is a panel's column, into a panel of row_tile or of column_tile
  // columns; missing rows and a missing end of the last unit become zero.
  void (*pack_rows)(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel);
  void (*pack_columns)(const void* source, int64_t ld, int64_t rows, int64_t k, uint32_t* panel);

  // source[k, columns] into panels of column_tile columns, `panel_units` units apart, padded in the
  // same way.
  void (*pack_straight)(const void* source, int64_t ld, int64_t k, int64_t columns,
                        int64_t panel_units, uint32_t* panels);

  // c[rows, columns] = (first ? 0 : c) + a * b: panels of row_tile rows and of column_tile columns,
  // each of `units` units. Meanwhile `next` is fetched.
  void (*multiply)(const uint32_t* a, int64_t rows, const uint32_t* b, int64_t columns,
                   int64_t units, bool first, float* c, int64_t ldc, const NextWeight& next);
};

// The kernels of one instruction set for float32, bfloat16 and float16; null for other dtypes. Avx2
// and Avx512 exist on x86-64 only, and run where CanRun() of isa.h says so.
const GemmKernels* PortableGemmKernels(DType dtype);
const GemmKernels* Avx2GemmKernels(DType dtype);
const GemmKernels* Avx512GemmKernels(DType dtype);

// For bfloat16, if HasAvx512BFloat16() (isa.h).
const GemmKernels* Avx512BFloat16GemmKernels();

}  // namespace collops::kernels
