// The weight of a product: blocks that are packed for one call, and weights packed whole before.

#include <algorithm>

#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/gemm/gemm_cut.h"
#include "collops/kernels/gemm/gemm_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

constexpr int64_t kPageBytes = 4096;

// The block after (strip, k_block), in the order of k, then of strips; false after the last.
bool NextBlock(const GemmPlan& plan, int64_t* strip, int64_t* k_block) {
  if (++*k_block < plan.num_k_blocks()) return true;
  *k_block = 0;
  return ++*strip < plan.num_strips();
}

// A block of the weight, with the place of the next one.
WeightBlock PlainBlock(const GemmPlan& plan, const void* weight, int64_t ldw, int64_t strip,
                       int64_t k_block, const void* panels) {
  if (!NextBlock(plan, &strip, &k_block)) return {panels, false, nullptr, 0, 0, 0};
  const int64_t k_begin = k_block * plan.block_k;
  const int64_t k = plan.KBlockSize(k_block);
  const int64_t first = plan.StripBegin(strip);
  const int64_t columns = plan.StripColumns(strip);
  const int64_t bytes = SizeOf(plan.dtype);
  if (plan.trans_weight) {
    return {panels, false, At(plan, weight, ldw, first, k_begin), columns, k * bytes, ldw * bytes};
  }
  return {panels, false, At(plan, weight, ldw, k_begin, first), k, columns * bytes, ldw * bytes};
}

// Units of a block of the weight.
int64_t BlockUnits(const GemmPlan& plan, int64_t strip, int64_t k_block) {
  return PaddedColumns(plan, strip) * Units(plan, plan.KBlockSize(k_block));
}

// Bytes that a packed weight has for a unit.
int64_t PackedUnitBytes(const GemmPlan& plan) {
  return plan.kernels->half_weight != nullptr ? int64_t{sizeof(uint16_t)} : kUnitBytes;
}

// Where a block of a packed weight begins. The order is [strip][k block][panel][unit].
int64_t PackedOffset(const GemmPlan& plan, int64_t strip, int64_t k_block) {
  const int64_t units = plan.StripBegin(strip) * AllUnits(plan) +
                        PaddedColumns(plan, strip) * Units(plan, k_block * plan.block_k);
  return units * PackedUnitBytes(plan);
}

// Up to so many rows, 16-bit numbers of a packed weight are widened in passing, for each panel of
// rows anew; for more, once into scratch memory.
constexpr int64_t kMostWideningRows = 16;

// With fewer rows, memory is the limit, and fetching the weight ahead gains nothing. With 8 rows
// and a packed weight, it takes 0.8 of the time on Zen 3.
constexpr int64_t kLeastFetchingRows = 5;

}  // namespace

int64_t WeightBlockBytes(const GemmPlan& plan) {
  const int64_t columns = std::min(RoundUp(plan.n, plan.kernels->column_tile), kGemmStripColumns);
  return columns * Units(plan, std::min(plan.k, plan.block_k)) * kUnitBytes;
}

WeightBlock PackWeightBlock(const GemmPlan& plan, const void* weight, int64_t ldw, int64_t strip,
                            int64_t k_block, void* scratch) {
  const GemmKernels& kernels = *plan.kernels;
  const int64_t first = plan.StripBegin(strip);
  const int64_t columns = plan.StripColumns(strip);
  const int64_t k_begin = k_block * plan.block_k;
  const int64_t k = plan.KBlockSize(k_block);
  const int64_t panel_units = Units(plan, k) * kernels.column_tile;
  uint32_t* const panels = static_cast<uint32_t*>(scratch);
  if (!plan.trans_weight) {
    kernels.pack_straight(At(plan, weight, ldw, k_begin, first), ldw, k, columns, panel_units,
                          panels);
    return PlainBlock(plan, weight, ldw, strip, k_block, scratch);
  }
  for (int64_t j = 0; j < columns; j += kernels.column_tile) {
    kernels.pack_columns(At(plan, weight, ldw, first + j, k_begin), ldw,
                         std::min(kernels.column_tile, columns - j), k,
                         panels + j / kernels.column_tile * panel_units);
  }
  return PlainBlock(plan, weight, ldw, strip, k_block, scratch);
}

int64_t PackedWeightBytes(const GemmPlan& plan) {
  return RoundUp(plan.n, plan.kernels->column_tile) * AllUnits(plan) * PackedUnitBytes(plan);
}

int64_t PackWeightScratchBytes(const GemmPlan& plan) {
  return plan.kernels->half_weight == nullptr ? 0 : NumThreads() * WeightBlockBytes(plan);
}

void PackWeight(const GemmPlan& plan, const void* weight, int64_t ldw, void* scratch,
                void* packed) {
  const int64_t parts = NumThreads();
  ParallelFor(static_cast<int>(parts), [&](int part) {
    char* const own = static_cast<char*>(scratch) + part * WeightBlockBytes(plan);
    for (int64_t strip = part; strip < plan.num_strips(); strip += parts) {
      for (int64_t k_block = 0; k_block < plan.num_k_blocks(); ++k_block) {
        char* const to = static_cast<char*>(packed) + PackedOffset(plan, strip, k_block);
        const HalfWeight* const halves = plan.kernels->half_weight;
        PackWeightBlock(plan, weight, ldw, strip, k_block, halves == nullptr ? to : own);
        if (halves == nullptr) continue;
        halves->narrow(reinterpret_cast<const uint32_t*>(own), BlockUnits(plan, strip, k_block),
                       reinterpret_cast<uint16_t*>(to));
      }
    }
  });
}

WeightBlock PackedWeightBlock(const GemmPlan& plan, const void* packed, int64_t strip,
                              int64_t k_block, int64_t rows, void* scratch) {
  const char* const bytes = static_cast<const char*>(packed);
  WeightBlock block = {};
  block.panels = bytes + PackedOffset(plan, strip, k_block);
  block.in_halves = plan.kernels->half_weight != nullptr;
  if (block.in_halves && rows > kMostWideningRows) {
    plan.kernels->half_weight->widen(static_cast<const uint16_t*>(block.panels),
                                     BlockUnits(plan, strip, k_block),
                                     static_cast<uint32_t*>(scratch));
    block.panels = scratch;
    block.in_halves = false;
  }
  if (!NextBlock(plan, &strip, &k_block)) return block;
  // In pieces of a page, so that threads can share them.
  block.next = bytes + PackedOffset(plan, strip, k_block);
  block.next_rows = CeilDiv(BlockUnits(plan, strip, k_block) * PackedUnitBytes(plan), kPageBytes);
  block.next_row_bytes = kPageBytes;
  block.next_ld_bytes = kPageBytes;
  return block;
}

WeightBlock ShareOfBlock(const WeightBlock& block, int64_t begin, int64_t end, int64_t all_rows) {
  WeightBlock share = block;
  const int64_t least = all_rows < kLeastFetchingRows ? 0 : block.next_rows;
  const int64_t first = least * begin / std::max<int64_t>(all_rows, 1);
  share.next = static_cast<const char*>(block.next) + first * block.next_ld_bytes;
  share.next_rows = least * end / std::max<int64_t>(all_rows, 1) - first;
  return share;
}

}  // namespace collops::kernels
