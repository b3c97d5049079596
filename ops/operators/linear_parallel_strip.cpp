#include "operators/linear_parallel_strip.h"

#include "kernels/store_sum.h"

namespace collops {

kernels::WeightBlock LinearStrip::Block(int64_t strip, int64_t k_block) const {
  if (tensors_.packed_weight != nullptr) {
    return kernels::PackedWeightBlock(plan_.gemm, tensors_.packed_weight, strip, k_block);
  }
  return kernels::PackWeightBlock(plan_.gemm, tensors_.weight, ldw(), strip, k_block, scratch_);
}

void LinearStrip::Multiply(const std::vector<Task>& tasks, int64_t strip, int64_t k_block,
                           int64_t ld_tile) const {
  const GatheredRows::Group& first = *tasks.front().group;
  if (tasks.size() == 1 && tensors_.packed_weight == nullptr &&
      kernels::AreFewRows(plan_.gemm, first.rows)) {
    return kernels::MultiplyFewRows(plan_.gemm, first.panels, first.rows, tensors_.weight, ldw(),
                                    strip, k_block, scratch_, tasks.front().tile, ld_tile);
  }
  int64_t all_rows = 0;
  for (const Task& task : tasks) all_rows += task.group->rows;
  const kernels::WeightBlock block = Block(strip, k_block);
  int64_t row = 0;
  for (const Task& task : tasks) {
    const int64_t end = row + task.group->rows;
    kernels::MultiplyBlock(plan_.gemm, task.group->panels, task.group->rows,
                           kernels::ShareOfBlock(block, row, end, all_rows), strip, k_block,
                           task.tile, ld_tile);
    row = end;
  }
}

void LinearStrip::Store(const GatheredRows::Group& group, int64_t strip, const float* tile,
                        int64_t ld_tile) const {
  const int64_t element_bytes = SizeOf(plan_.dtype);
  const int64_t column = plan_.gemm.StripBegin(strip);
  const auto* residual = static_cast<const std::byte*>(tensors_.residual);
  kernels::StoreSum(plan_.dtype, &tile, 1, ld_tile,
                    residual == nullptr ? nullptr : residual + column * element_bytes, group.rows,
                    plan_.gemm.StripColumns(strip),
                    static_cast<std::byte*>(tensors_.output) +
                        (group.first_row * plan_.gemm.n + column) * element_bytes,
                    plan_.gemm.n);
}

}  // namespace collops
