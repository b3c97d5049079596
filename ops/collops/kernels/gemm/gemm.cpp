#include "collops/kernels/gemm/gemm.h"

#include <algorithm>

#include "collops/kernels/gemm/gemm_cut.h"
#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

// The number of multiplications from which waking other threads pays.
constexpr int64_t kLeastSharedProducts = 8 << 20;

// Rows that one thread multiplies at a time, a multiple of every row_tile.
constexpr int64_t kPartRows = 64;

const GemmKernels* FindKernels(DType dtype) {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
      if (dtype == DType::kBFloat16) return AmxBFloat16GemmKernels();
      [[fallthrough]];
    case Isa::kAvx512:
      if (dtype == DType::kBFloat16 && HasAvx512BFloat16()) return Avx512BFloat16GemmKernels();
      return Avx512GemmKernels(dtype);
    case Isa::kAvx2:
      return Avx2GemmKernels(dtype);
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() == Isa::kNeon) {
    if (dtype == DType::kBFloat16 && HasBfmmla()) return BfmmlaGemmKernels();
    return NeonGemmKernels(dtype);
  }
#endif
  return PortableGemmKernels(dtype);
}

// Where a group's panels of a block begin, in units. The order is [k block][panel][unit][row].
int64_t BlockOffset(const GemmPlan& plan, int64_t group_rows, int64_t k_block) {
  return Units(plan, k_block * plan.block_k) * RoundUp(group_rows, plan.row_tile);
}

// Packs the rows of one panel, across block borders.
void PackPanel(const GemmPlan& plan, const void* x, int64_t ldx, int64_t row, int64_t rows,
               int64_t k_begin, int64_t k_end, int64_t group_rows, uint32_t* panels) {
  for (int64_t k = k_begin; k < k_end;) {
    const int64_t k_block = k / plan.block_k;
    const int64_t in_block = k - k_block * plan.block_k;
    const int64_t end = std::min(k_end, (k_block + 1) * plan.block_k);
    uint32_t* const panel = panels + BlockOffset(plan, group_rows, k_block) +
                            row * Units(plan, plan.KBlockSize(k_block)) +
                            Units(plan, in_block) * plan.row_tile;
    plan.kernels->pack_rows(At(plan, x, ldx, 0, k - k_begin), ldx, rows, end - k, panel);
    k = end;
  }
}

// Units of k that are packed and at once multiplied by few rows: with a panel's columns, half of a
// first-level cache. Measured on a weight [n, k] of 4096 x 4096 with 1 to 8 rows, one core, against
// blocks that are packed as a whole: float32 1.0-1.1 times as fast, bfloat16 1.1-1.2, float16
// 1.2-1.4; on a weight [k, n], or with more rows, it gains nothing.
constexpr int64_t kPassingUnits = 128;

NextWeight NextOf(const WeightBlock& block) {
  return {static_cast<const char*>(block.next), block.next_rows, block.next_row_bytes,
          block.next_ld_bytes};
}

}  // namespace

bool CanMultiply(DType dtype) {
  return PortableGemmKernels(dtype) != nullptr;
}

GemmPlan PlanGemm(DType dtype, int64_t k, int64_t n, bool trans_weight) {
  const GemmKernels* const kernels = FindKernels(dtype);
  const int64_t block_k = kernels->block_units * kernels->k_per_unit;
  return {dtype, k, n, trans_weight, kernels->row_tile, block_k, kernels};
}

int64_t PackedRowsBytes(const GemmPlan& plan, int64_t rows) {
  return RoundUp(rows, plan.row_tile) * AllUnits(plan) * kUnitBytes;
}

void PackRows(const GemmPlan& plan, const void* x, int64_t ldx, int64_t row, int64_t rows,
              int64_t k_begin, int64_t k_end, int64_t group_rows, void* panels) {
  const auto pack = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += plan.row_tile) {
      PackPanel(plan, At(plan, x, ldx, i, 0), ldx, row + i, std::min(plan.row_tile, end - i),
                k_begin, k_end, group_rows, static_cast<uint32_t*>(panels));
    }
  };
  const int64_t bytes = rows * (k_end - k_begin) * (SizeOf(plan.dtype) + kUnitBytes);
  if (bytes < kLeastSharedBytes || NumThreads() == 1) return pack(0, rows);
  ParallelFor(static_cast<int>(CeilDiv(rows, kPartRows)), [&](int part) {
    const int64_t begin = part * kPartRows;
    pack(begin, std::min(begin + kPartRows, rows));
  });
}

void MultiplyBlock(const GemmPlan& plan, const void* panels, int64_t group_rows,
                   const WeightBlock& block, int64_t strip, int64_t k_block, float* c,
                   int64_t ldc) {
  const int64_t columns = plan.StripColumns(strip);
  const int64_t units = Units(plan, plan.KBlockSize(k_block));
  const uint32_t* const a =
      static_cast<const uint32_t*>(panels) + BlockOffset(plan, group_rows, k_block);
  const auto multiply = [&](int64_t begin, int64_t end, const NextWeight& next) {
    const auto run = [&](const auto* weight, auto* kernel) {
      kernel(a + begin * units, end - begin, weight, columns, units, k_block == 0, c + begin * ldc,
             ldc, next);
    };
    if (block.in_halves) {
      run(static_cast<const uint16_t*>(block.panels), plan.kernels->half_weight->multiply);
    } else {
      run(static_cast<const uint32_t*>(block.panels), plan.kernels->multiply);
    }
  };
  if (group_rows * columns * units < kLeastSharedProducts || NumThreads() == 1) {
    return multiply(0, group_rows, NextOf(block));
  }
  ParallelFor(static_cast<int>(CeilDiv(group_rows, kPartRows)), [&](int part) {
    const int64_t begin = part * kPartRows;
    const int64_t end = std::min(begin + kPartRows, group_rows);
    multiply(begin, end, NextOf(ShareOfBlock(block, begin, end, group_rows)));
  });
}

bool AreFewRows(const GemmPlan& plan, int64_t rows) {
  return plan.trans_weight && rows <= plan.row_tile;
}

void MultiplyFewRows(const GemmPlan& plan, const void* panels, int64_t group_rows,
                     const void* weight, int64_t ldw, int64_t strip, int64_t k_block, void* scratch,
                     float* c, int64_t ldc) {
  const GemmKernels& kernels = *plan.kernels;
  const int64_t columns = plan.StripColumns(strip);
  const int64_t k_begin = k_block * plan.block_k;
  const int64_t k_end = k_begin + plan.KBlockSize(k_block);
  const int64_t step = kPassingUnits * kernels.k_per_unit;
  const uint32_t* const panel =
      static_cast<const uint32_t*>(panels) + BlockOffset(plan, group_rows, k_block);
  uint32_t* const piece = static_cast<uint32_t*>(scratch);
  for (int64_t j = 0; j < columns; j += kernels.column_tile) {
    const int64_t width = std::min(kernels.column_tile, columns - j);
    const uint32_t* a = panel;
    int64_t k = k_begin;
    do {  // runs once even if k is 0: that sets C
      const int64_t size = std::min(step, k_end - k);
      kernels.pack_columns(At(plan, weight, ldw, plan.StripBegin(strip) + j, k), ldw, width, size,
                           piece);
      kernels.multiply(a, group_rows, piece, width, Units(plan, size), k == 0, c + j, ldc, {});
      a += kPassingUnits * plan.row_tile;
      k += step;
    } while (k < k_end);
  }
}

}  // namespace collops::kernels
