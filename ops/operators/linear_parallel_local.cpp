#include "operators/linear_parallel_local.h"

#include "operators/linear_parallel_rows.h"
#include "operators/linear_parallel_strip.h"

namespace collops {

void RunLocalLinear(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace) {
  const GatheredRows rows(plan, tensors, workspace);
  const GatheredRows::Group& group = rows.groups()[0];
  const int64_t row_bytes = plan.layout.k * SizeOf(plan.dtype);
  rows.Take(0, {static_cast<const std::byte*>(tensors.x), row_bytes, 0, group.rows, 0, row_bytes});
  const LinearStrip product(plan, tensors, workspace);
  auto* tile = reinterpret_cast<float*>(workspace + plan.memory.tile);
  const int64_t ld = plan.gemm.StripColumns(0);
  for (int64_t strip = 0; strip < plan.gemm.num_strips(); ++strip) {
    for (int64_t k_block = 0; k_block < plan.gemm.num_k_blocks(); ++k_block) {
      product.Multiply({{&group, tile}}, strip, k_block, ld);
    }
    product.Store(group, strip, tile, ld);
  }
}

}  // namespace collops
