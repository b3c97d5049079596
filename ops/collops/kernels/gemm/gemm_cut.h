#pragma once

#include <algorithm>
#include <cstdint>

#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/gemm/gemm_plan.h"

// Sizes and places in a plan's panels.
namespace collops::kernels {

constexpr int64_t kUnitBytes = 4;

inline int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline int64_t RoundUp(int64_t a, int64_t b) {
  return CeilDiv(a, b) * b;
}

// Units of k elements of a block that begins at a multiple of kGemmStepK.
inline int64_t Units(const GemmPlan& plan, int64_t k) {
  return RoundUp(CeilDiv(k, plan.kernels->k_per_unit), plan.kernels->unit_step);
}

// Units of one panel over all of k.
inline int64_t AllUnits(const GemmPlan& plan) {
  return Units(plan, plan.k);
}

inline int64_t PaddedColumns(const GemmPlan& plan, int64_t strip) {
  return RoundUp(plan.StripColumns(strip), plan.kernels->column_tile);
}

inline const char* At(const GemmPlan& plan, const void* base, int64_t ld, int64_t row,
                      int64_t column) {
  return static_cast<const char*>(base) + (row * ld + column) * SizeOf(plan.dtype);
}

}  // namespace collops::kernels
