#include "operators/linear_parallel_run.h"

#include <algorithm>

#include "core/env.h"
#include "operators/linear_parallel_fused.h"
#include "operators/linear_parallel_local.h"
#include "operators/linear_parallel_pipeline.h"
#include "operators/linear_parallel_rows.h"

namespace collops {
namespace {

constexpr int64_t kAlignment = kernels::kGemmAlignment;

int64_t RoundUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Places one piece after the other.
class Places {
 public:
  int64_t Take(int64_t bytes) {
    const int64_t begin = end_;
    end_ += RoundUp(bytes);
    return begin;
  }
  // The workspace may begin anywhere.
  int64_t Bytes() const { return end_ + kAlignment; }

 private:
  int64_t end_ = 0;
};

// Two, so that adding up one strip and multiplying the next overlap. Small ones are kept longer:
// ranks that share a core then take turns less often. Never all strips, but for
// the narrowest products.
int64_t TileSlots(const kernels::GemmPlan& gemm, int64_t tile_bytes) {
  constexpr int64_t kRingBytes = 1 << 20;
  const int64_t fitting = kRingBytes / std::max<int64_t>(tile_bytes, 1);
  const int64_t most = std::max<int64_t>(std::min({fitting, gemm.num_strips() / 2, int64_t{8}}), 2);
  return std::min(most, gemm.num_strips());
}

LinearMemory LayOut(const LinearPlan& plan) {
  LinearMemory memory;
  Places places;
  for (const int64_t rows : plan.layout.gather.rows) {
    memory.panels.push_back(places.Take(kernels::PackedRowsBytes(plan.gemm, rows)));
  }
  if (JoinsRows(plan.layout)) {
    memory.raw_rows = places.Take(plan.layout.total_rows * plan.layout.k * SizeOf(plan.dtype));
  }
  memory.weight_block = places.Take(kernels::WeightBlockBytes(plan.gemm));
  const int64_t tile_bytes =
      plan.layout.total_rows * plan.gemm.StripColumns(0) * int64_t{sizeof(float)};
  if (plan.engine == LinearEngine::kFused && SumsPartials(plan)) {
    memory.tile_slots = TileSlots(plan.gemm, tile_bytes);
    memory.tile_bytes = memory.tile_slots * tile_bytes;
  } else {
    memory.tile = places.Take(tile_bytes);
  }
  if (plan.engine == LinearEngine::kPipeline) {
    memory.sum = places.Take(SumBytes(plan));
    memory.gathered = places.Take(GatherBytes(plan));
  }
  memory.bytes = places.Bytes();
  return memory;
}

std::byte* Aligned(void* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return static_cast<std::byte*>(workspace) + (RoundUp(static_cast<int64_t>(address % kAlignment)) -
                                               static_cast<int64_t>(address % kAlignment));
}

}  // namespace

void AddLinearTerms(const LinearParallelParam& param, const LinearPlan& plan,
                    Agreement* agreement) {
  const bool on_grid = param.type == LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  LinearParallelParam::TwoDimTPInfo grid;  // of other types it is not read
  if (on_grid) grid = param.twoDimTPInfo;
  const LinearLayout& layout = plan.layout;
  agreement->EqualText("dtype", Name(plan.dtype))
      .Equal("rankRoot", param.rankRoot)
      .Equal("type", param.type)
      .Equal("agDim", grid.agDim)
      .Equal("rsDim", grid.rsDim)
      .Equal("innerDimIsAg", grid.innerDimIsAg)
      .Equal("k", layout.k)
      .Equal("n", layout.n)
      .Equal("the sum of the rows", layout.total_rows)
      // Ranks with different engines would wait for each other.
      .EqualText("the engine", plan.engine == LinearEngine::kPipeline ? "pipeline" : "windows")
      .EqualInGroup("gatherRows", layout.gather.ranks, layout.gather.index, layout.gather.rows)
      .EqualInGroup("scatterRows", layout.scatter.ranks, layout.scatter.index,
                    layout.scatter.rows);
}

LinearEngine ChooseLinearEngine(const LinearLayout& layout, const Communicator& communicator) {
  if (layout.gather.ranks.size() == 1 && layout.scatter.ranks.size() == 1) {
    return LinearEngine::kLocal;
  }
  Env env;
  const bool fused = communicator.HasWindows() && Env::Read(&env).ok() && env.fused;
  return fused ? LinearEngine::kFused : LinearEngine::kPipeline;
}

LinearPlan PlanLinear(const LinearLayout& layout, DType dtype, int rank_size, LinearEngine engine) {
  LinearPlan plan;
  plan.layout = layout;
  plan.rank_size = rank_size;
  plan.dtype = dtype;
  plan.gemm = kernels::PlanGemm(dtype, layout.k, layout.n, layout.trans_weight);
  plan.engine = engine;
  plan.memory = LayOut(plan);
  return plan;
}

Status RunLinear(const LinearPlan& plan, const LinearTensors& tensors, const Agreement& agreement,
                 void* workspace, Communicator* communicator) {
  std::byte* scratch = Aligned(workspace);
  switch (plan.engine) {
    case LinearEngine::kLocal:
      RunLocalLinear(plan, tensors, scratch);
      return Ok();
    case LinearEngine::kFused:
      return RunFusedLinear(plan, tensors, agreement, scratch, communicator);
    case LinearEngine::kPipeline:
      break;
  }
  return RunPipelineLinear(plan, tensors, agreement, scratch, communicator);
}

}  // namespace collops
