#include "operators/linear_parallel_run.h"

#include "core/env.h"
#include "operators/linear_parallel_fused.h"
#include "operators/linear_parallel_local.h"
#include "operators/linear_parallel_pipeline.h"

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

LinearMemory LayOut(const LinearPlan& plan) {
  LinearMemory memory;
  Places places;
  for (const int64_t rows : plan.layout.gather.rows) {
    memory.panels.push_back(places.Take(kernels::PackedRowsBytes(plan.gemm, rows)));
  }
  memory.weight_block = places.Take(kernels::WeightBlockBytes(plan.gemm));
  const int64_t tile_bytes =
      plan.layout.total_rows * plan.gemm.StripColumns(0) * int64_t{sizeof(float)};
  if (plan.engine == LinearEngine::kFused && SumsPartials(plan)) {
    memory.tile_bytes = 2 * tile_bytes;
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

LinearTerms MakeLinearTerms(const LinearParallelParam& param, const LinearLayout& layout) {
  const LinearParallelParam::TwoDimTPInfo& grid = param.twoDimTPInfo;
  LinearTerms terms;
  terms.root = param.rankRoot;
  terms.terms = {{"type", param.type},
                 {"k", layout.k},
                 {"n", layout.n},
                 {"the sum of the rows", layout.total_rows}};
  if (param.type != LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER) return terms;
  terms.terms.insert(
      terms.terms.begin() + 1,
      {{"agDim", grid.agDim}, {"rsDim", grid.rsDim}, {"innerDimIsAg", grid.innerDimIsAg}});
  return terms;
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

Status RunLinear(const LinearPlan& plan, const LinearTensors& tensors, const LinearTerms& terms,
                 void* workspace, Communicator* communicator, LinearParts* parts) {
  std::byte* scratch = Aligned(workspace);
  switch (plan.engine) {
    case LinearEngine::kLocal:
      RunLocalLinear(plan, tensors, scratch);
      return Ok();
    case LinearEngine::kFused:
      return RunFusedLinear(plan, tensors, terms, scratch, communicator);
    case LinearEngine::kPipeline:
      break;
  }
  return RunPipelineLinear(plan, tensors, terms, scratch, communicator, parts);
}

}  // namespace collops
