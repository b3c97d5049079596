#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

Status Accepts(const EnginePlace& place) {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(place));
  COLLOPS_CHECK_ARG(place.alone(), ERROR_UNSUPPORTED, "a product of ", place.rank_size,
                    " ranks needs communication");
  return Ok();
}

Status PlanMemory(LinearPlan* plan) {
  Places places = PlaceRows(plan);
  plan->memory.tile = places.Take(TileBytes(*plan));
  plan->memory.bytes = places.bytes();
  return Ok();
}

// This rank's own x times its own weight.
Status Run(const LinearRun& run) {
  const LinearPlan& plan = run.plan;
  const GatheredRows rows(run);
  const GatheredRows::Group& group = rows.groups()[0];
  const int64_t row_bytes = RowBytes(plan);
  COLLOPS_RETURN_IF_ERROR(rows.Take(
      0, {static_cast<const std::byte*>(run.tensors.x), row_bytes, 0, group.rows, 0, row_bytes}));
  const LinearStrip product(run);
  auto* tile = reinterpret_cast<float*>(run.workspace + plan.memory.tile);
  const std::vector<kernels::ProductTask> tasks = {LinearStrip::Task(group, tile)};
  const int64_t ld = plan.product->StripColumns(0);
  for (int64_t strip = 0; strip < plan.product->num_strips(); ++strip) {
    for (int64_t k_block = 0; k_block < plan.product->num_k_blocks(); ++k_block) {
      COLLOPS_RETURN_IF_ERROR(product.Multiply(tasks, strip, k_block, ld));
    }
    COLLOPS_RETURN_IF_ERROR(product.Store(&tile, 1, ld, strip, 0, group.rows));
  }
  return Ok();
}

}  // namespace

const Engine kLocal = {"local", &Accepts, &PlanMemory, &Run};

}  // namespace collops
