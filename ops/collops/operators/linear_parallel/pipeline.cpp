// The CPU's engines without windows: one product of a rank alone, and collectives and products one
// after the other.
#include <algorithm>
#include <string>
#include <utility>

#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

Status AcceptsAlone(const EnginePlace& place) {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(place));
  COLLOPS_CHECK_ARG(place.alone(), ERROR_UNSUPPORTED, "a product of ", place.rank_size,
                    " ranks needs communication");
  return Ok();
}

Status PlanLocal(LinearPlan* plan) {
  Places places = PlaceRows(plan);
  plan->memory.tile = places.Take(TileBytes(*plan));
  plan->memory.bytes = places.bytes();
  return Ok();
}

// This rank's own x times its own weight.
Status RunLocal(const LinearRun& run) {
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

Status AcceptsCalls(const EnginePlace& place) {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(place));
  COLLOPS_CHECK_ARG(!place.alone() || place.rank_size == 1, ERROR_UNSUPPORTED,
                    "this product needs no communication");
  return Ok();
}

// Rows of one member in one AllGatherV: about this many bytes, in whole pieces that can be packed.
constexpr int64_t kRowsBytes = 1 << 20;

int64_t RowsAtOnce(const LinearPlan& plan) {
  const int64_t unit = plan.compute->row_unit();
  return unit * std::max<int64_t>(kRowsBytes / unit / RowBytes(plan), 1);
}

// This rank's sums of one strip of columns.
int64_t SumBytes(const LinearPlan& plan) {
  if (!SumsPartials(plan)) return 0;
  return OwnRows(plan) * plan.product->StripColumns(0) * int64_t{sizeof(float)};
}

// The rows that one AllGatherV brings.
int64_t GatheredBytes(const LinearPlan& plan) {
  if (!Gathers(plan)) return 0;
  int64_t rows = 0;
  for (const int64_t n : plan.layout.gather.rows) rows += std::min(n, RowsAtOnce(plan));
  return rows * RowBytes(plan);
}

Status PlanPipeline(LinearPlan* plan) {
  Places places = PlaceRows(plan);
  plan->memory.tile = places.Take(TileBytes(*plan));
  plan->memory.sum = places.Take(SumBytes(*plan));
  plan->memory.gathered = places.Take(GatheredBytes(*plan));
  plan->memory.bytes = places.bytes();
  return Ok();
}

// AllGatherV of some rows after the other into packed rows, then for each strip of columns the
// product and its ReduceScatterV in float32.
class PipelineLinear {
 public:
  PipelineLinear(const LinearRun& run, const GridParts& parts)
      : run_(run),
        plan_(run.plan),
        rows_(run),
        strip_(run),
        tile_(reinterpret_cast<float*>(run.workspace + plan_.memory.tile)),
        sum_(reinterpret_cast<float*>(run.workspace + plan_.memory.sum)),
        gathered_(run.workspace + plan_.memory.gathered),
        gather_(parts.gather),
        scatter_(parts.scatter) {}

  Status Run() {
    COLLOPS_RETURN_IF_ERROR(Gather());
    for (int64_t strip = 0; strip < plan_.product->num_strips(); ++strip) {
      COLLOPS_RETURN_IF_ERROR(Multiply(strip));
      COLLOPS_RETURN_IF_ERROR(SumsPartials(plan_) ? Sum(strip) : Store(strip));
    }
    return Ok();
  }

 private:
  Status Gather() {
    const auto* x = static_cast<const std::byte*>(run_.tensors.x);
    const std::vector<int64_t>& rows = plan_.layout.gather.rows;
    const int64_t row_bytes = RowBytes(plan_);
    if (!Gathers(plan_)) return rows_.Take(0, {x, row_bytes, 0, rows[0], 0, row_bytes});
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    for (int64_t row = 0; row < most; row += RowsAtOnce(plan_)) {
      COLLOPS_RETURN_IF_ERROR(GatherFrom(row, x + row * row_bytes));
    }
    return rows_.joins() ? rows_.Join() : Ok();
  }

  // Rows [row, row + RowsAtOnce) of every member, as far as it has them.
  Status GatherFrom(int64_t row, const std::byte* x) {
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    int64_t end = 0;
    for (const int64_t rows : plan_.layout.gather.rows) {
      counts.push_back(std::clamp<int64_t>(rows - row, 0, RowsAtOnce(plan_)) * plan_.layout.k);
      displs.push_back(end);
      end += counts.back();
    }
    AllGatherVCall call;
    call.agreement = &gathers_;
    call.dtype = plan_.dtype;
    call.x = x;
    call.output = gathered_;
    call.recv_counts = counts.data();
    call.rdispls = displs.data();
    call.stream = run_.stream;
    COLLOPS_RETURN_IF_ERROR(InGroup(plan_, plan_.layout.gather.ranks, gather_->AllGatherV(call)));
    const int64_t row_bytes = RowBytes(plan_);
    for (size_t g = 0; g < counts.size(); ++g) {
      const int64_t rows = counts[g] / plan_.layout.k;
      if (rows == 0) continue;
      const std::byte* from = gathered_ + displs[g] * SizeOf(plan_.dtype);
      COLLOPS_RETURN_IF_ERROR(rows_.Take(g, {from, row_bytes, row, rows, 0, row_bytes}));
    }
    return Ok();
  }

  Status Multiply(int64_t strip) {
    const int64_t ld = plan_.product->StripColumns(strip);
    std::vector<kernels::ProductTask> tasks;
    if (rows_.joined()) {
      tasks.push_back(LinearStrip::Task(rows_.all(), tile_));
    } else {
      for (const GatheredRows::Group& group : rows_.groups()) {
        tasks.push_back(LinearStrip::Task(group, tile_ + group.first_row * ld));
      }
    }
    for (int64_t k_block = 0; k_block < plan_.product->num_k_blocks(); ++k_block) {
      COLLOPS_RETURN_IF_ERROR(strip_.Multiply(tasks, strip, k_block, ld));
    }
    return Ok();
  }

  Status Store(int64_t strip) {
    const int64_t ld = plan_.product->StripColumns(strip);
    return strip_.Store(&tile_, 1, ld, strip, 0, plan_.layout.total_rows);
  }

  Status Sum(int64_t strip) {
    const LinearLayout& layout = plan_.layout;
    const int64_t columns = plan_.product->StripColumns(strip);
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    for (size_t m = 0; m < layout.scatter.rows.size(); ++m) {
      counts.push_back(layout.scatter.rows[m] * columns);
      displs.push_back(layout.scatter.begin[m] * columns);
    }
    ReduceScatterVCall call;
    call.agreement = &sums_;
    call.dtype = DType::kFloat32;
    call.x = tile_;
    call.output = sum_;
    call.output_count = OwnRows(plan_) * columns;
    call.send_counts = counts.data();
    call.sdispls = displs.data();
    call.stream = run_.stream;
    COLLOPS_RETURN_IF_ERROR(InGroup(plan_, layout.scatter.ranks, scatter_->ReduceScatterV(call)));
    return strip_.Store(&sum_, 1, columns, strip, 0, OwnRows(plan_));
  }

  const LinearRun& run_;
  const LinearPlan& plan_;
  GatheredRows rows_;
  LinearStrip strip_;
  float* tile_;
  float* sum_;
  std::byte* gathered_;
  Communicator* gather_;
  Communicator* scatter_;
  // All that they move has been agreed on.
  const Agreement gathers_ = Agreement("AllGatherV");
  const Agreement sums_ = Agreement("ReduceScatterV");
};

Status RunPipeline(const LinearRun& run) {
  // Those who disagree learn it before anything moves.
  COLLOPS_RETURN_IF_ERROR(run.communicator->Agree(run.agreement));
  GridParts parts;
  Status status = FindParts(run, &parts);
  if (status.ok()) status = PipelineLinear(run, parts).Run();
  return status.ok() ? status : FailInParts(run, status);
}

}  // namespace

const Engine kLocal = {"local", &AcceptsAlone, &PlanLocal, &RunLocal};
const Engine kPipeline = {"pipeline", &AcceptsCalls, &PlanPipeline, &RunPipeline};

}  // namespace collops
