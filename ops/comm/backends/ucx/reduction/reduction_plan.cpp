#include "comm/backends/ucx/reduction/reduction_plan.h"

#include <utility>

namespace collops::ucx {
namespace {

class Planner {
 public:
  Planner(const HostMap& hosts, int owner, const ReductionElements& elements)
      : hosts_(hosts), owner_(owner), elements_(elements) {}

  ReductionPlan Whole() const {
    ReductionPlan plan;
    plan.whole = true;
    ReductionStage last;
    for (int rank = 0; rank < hosts_.ranks(); ++rank) {
      if (hosts_.HostOf(rank) == Home()) {
        last.sources.push_back({true, rank});
        continue;
      }
      ReductionStage stage;
      stage.worker = rank;
      stage.sources = {{true, rank}};
      last.sources.push_back({false, Add(std::move(stage), elements_.bytes, &plan)});
    }
    Close(std::move(last), &plan);
    return plan;
  }

  ReductionPlan HostsFirst() const {
    ReductionPlan plan;
    ReductionStage last;
    for (int host = 0; host < hosts_.hosts(); ++host) {
      if (host == Home()) {
        for (const StageSource& slice : Slices(host)) last.sources.push_back(slice);
        continue;
      }
      ReductionStage stage;
      stage.worker = WorkerOn(host);
      stage.sources = Slices(host);
      stage.result = stage.sources.size() == 1 ? StageResult::kSlice : StageResult::kPartial;
      last.sources.push_back({false, Add(std::move(stage), elements_.bytes, &plan)});
    }
    Close(std::move(last), &plan);
    return plan;
  }

  ReductionPlan Chain() const {
    ReductionPlan plan;
    ReductionStage stage;
    stage.worker = WorkerOn(hosts_.HostOf(0));
    for (int rank = 0; rank < hosts_.ranks(); ++rank) {
      const int worker = WorkerOn(hosts_.HostOf(rank));
      if (worker != stage.worker) {
        // The running sum crosses.
        const bool slice = rank == 1;
        stage.result = slice ? StageResult::kSlice : StageResult::kSums;
        if (slice) stage.worker = 0;
        const int64_t bytes = slice ? elements_.bytes : elements_.sum_bytes;
        const int before = Add(std::move(stage), bytes, &plan);
        stage = {};
        stage.worker = worker;
        stage.sources = {{false, before}};
      }
      stage.sources.push_back({true, rank});
    }
    if (stage.worker != owner_) {
      stage.result = StageResult::kFinished;
      const int before = Add(std::move(stage), elements_.bytes, &plan);
      stage = {};
      stage.sources = {{false, before}};
    }
    Close(std::move(stage), &plan);
    return plan;
  }

 private:
  int Home() const { return hosts_.HostOf(owner_); }
  int WorkerOn(int host) const {
    const auto& ranks = hosts_.RanksOf(host);
    return ranks[static_cast<size_t>(hosts_.LocalIndex(owner_)) % ranks.size()];
  }
  std::vector<StageSource> Slices(int host) const {
    std::vector<StageSource> slices;
    for (const int rank : hosts_.RanksOf(host)) slices.push_back({true, rank});
    return slices;
  }

  // A stage whose result crosses to another host.
  static int Add(ReductionStage stage, int64_t bytes, ReductionPlan* plan) {
    const int index = static_cast<int>(plan->stages.size());
    for (const StageSource& source : stage.sources) {
      if (!source.is_slice) plan->stages[static_cast<size_t>(source.index)].consumer = index;
    }
    stage.number = index % kMostChainStages;
    plan->stages.push_back(std::move(stage));
    plan->element_bytes += bytes;
    return index;
  }
  // The stage of the owner.
  void Close(ReductionStage stage, ReductionPlan* plan) const {
    stage.worker = owner_;
    stage.result = StageResult::kFinished;
    Add(std::move(stage), 0, plan);
  }

  const HostMap& hosts_;
  int owner_;
  const ReductionElements& elements_;
};

}  // namespace

ReductionElements ElementsOf(DType dtype, ReduceOp op) {
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool floating = half || dtype == DType::kFloat32 || dtype == DType::kFloat64;
  const bool extreme = op == ReduceOp::kMax || op == ReduceOp::kMin;
  ReductionElements elements;
  elements.bytes = SizeOf(dtype);
  elements.sum_bytes = half && !extreme ? int64_t{sizeof(float)} : elements.bytes;
  elements.any_order = extreme || !floating;
  return elements;
}

ReductionPlan PlanReduction(const HostMap& hosts, int owner, const ReductionElements& elements) {
  const Planner planner(hosts, owner, elements);
  ReductionPlan plan = planner.Whole();
  ReductionPlan other = elements.any_order ? planner.HostsFirst() : planner.Chain();
  const bool fits = elements.any_order || other.stages.size() <= kMostChainStages;
  if (fits && other.element_bytes < plan.element_bytes) plan = std::move(other);
  return plan;
}

}  // namespace collops::ucx
