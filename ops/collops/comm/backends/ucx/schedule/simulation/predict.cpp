#include "collops/comm/backends/ucx/schedule/simulation/predict.h"

#include <algorithm>
#include <memory>

#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/ucx/heads.h"
#include "collops/comm/backends/ucx/schedule/simulation/gather_program.h"
#include "collops/comm/backends/ucx/schedule/simulation/slice_program.h"
#include "collops/comm/backends/ucx/schedule/simulation/stage_program.h"
#include "collops/comm/control/board.h"

namespace collops::ucx {
namespace {

Status CheckCall(const CallToPredict& call) {
  const size_t ranks = call.host_of.size();
  COLLOPS_CHECK_ARG(ranks >= 1, ERROR_INVALID_PARAM, "a prediction needs at least one rank");
  COLLOPS_CHECK_ARG(call.counts.size() == ranks, ERROR_INVALID_PARAM, "counts must have ", ranks,
                    " numbers, one for each rank, got ", call.counts.size());
  COLLOPS_CHECK_ARG(SizeOf(call.dtype) > 0, ERROR_INVALID_PARAM,
                    "a prediction needs a type of elements");
  int hosts = 0;
  for (size_t r = 0; r < ranks; ++r) {
    COLLOPS_CHECK_ARG(call.host_of[r] >= 0 && call.host_of[r] < static_cast<int>(ranks),
                      ERROR_INVALID_PARAM, "host_of[", r, "] must be a number below ", ranks,
                      ", got ", call.host_of[r]);
    COLLOPS_CHECK_ARG(call.counts[r] >= 0, ERROR_INVALID_PARAM, "counts[", r,
                      "] must be >= 0, got ", call.counts[r]);
    hosts = std::max(hosts, call.host_of[r] + 1);
  }
  std::vector<bool> used(static_cast<size_t>(hosts));
  for (const int host : call.host_of) used[static_cast<size_t>(host)] = true;
  const auto unused = std::find(used.begin(), used.end(), false);
  COLLOPS_CHECK_ARG(unused == used.end(), ERROR_INVALID_PARAM, "no rank is on host ",
                    unused - used.begin());
  const LinkCosts& costs = call.costs;
  COLLOPS_CHECK_ARG(costs.network_rate > 0 && costs.copy_rate > 0 && costs.memory_rate > 0,
                    ERROR_INVALID_PARAM, "rates must be above 0");
  return Ok();
}

int64_t BytesOf(const ReductionPlan& plan) {
  int64_t bytes = sizeof(plan);
  for (const ReductionStage& stage : plan.stages) {
    bytes += static_cast<int64_t>(sizeof(stage) + stage.sources.size() * sizeof(StageSource));
  }
  return bytes;
}

// Memory by host, of the rank that needs most.
class Memory {
 public:
  Memory(const HostMap& hosts, const CallToPredict& call, const std::vector<ReductionPlan>& plans)
      : hosts_(hosts), call_(call), item_(SizeOf(call.dtype)), plans_(plans) {
    for (const ReductionPlan& plan : plans) plan_bytes_ += BytesOf(plan);
  }

  PredictedMemory Of(int host) const {
    PredictedMemory memory;
    const auto& here = hosts_.RanksOf(host);
    memory.segment_bytes = control::Board::Bytes(hosts_.ranks());
    if (here.size() > 1) memory.segment_bytes += shm::SegmentBytes(static_cast<int>(here.size()));
    // A rank speaks to as many ranks of a host as there are for each one here.
    int64_t targets = 0;
    for (int other = 0; other < hosts_.hosts(); ++other) {
      if (other == host) continue;
      targets +=
          static_cast<int64_t>((hosts_.RanksOf(other).size() + here.size() - 1) / here.size());
    }
    memory.heads_bytes = Heads::Bytes(hosts_.hosts() - 1, targets);
    if (!call_.reduces) return memory;
    for (const int rank : here) AddReduction(rank, &memory);
    memory.plan_bytes = plan_bytes_;
    return memory;
  }

 private:
  void AddReduction(int rank, PredictedMemory* memory) const {
    if (plans_.empty()) {
      const SliceSchedule schedule(hosts_, call_.counts.data(), item_);
      memory->scratch_bytes = std::max(memory->scratch_bytes, schedule.ScratchBytes(rank));
      return;
    }
    int64_t shared = 0;
    for (size_t owner = 0; owner < plans_.size(); ++owner) {
      if (IsShared(plans_[owner], rank)) shared += call_.counts[owner] * item_;
    }
    memory->scratch_bytes = std::max(
        memory->scratch_bytes, ReductionScratchBytes(plans_, call_.counts.data(),
                                                     ElementsOf(call_.dtype, call_.op), rank));
    memory->shared_bytes = std::max(memory->shared_bytes, shared);
  }

  const HostMap& hosts_;
  const CallToPredict& call_;
  const int64_t item_;
  const std::vector<ReductionPlan>& plans_;
  int64_t plan_bytes_ = 0;
};

}  // namespace

Status Predict(const CallToPredict& call, Prediction* prediction) {
  COLLOPS_RETURN_IF_ERROR(CheckCall(call));
  const HostMap hosts(call.host_of, 0);
  std::vector<ReductionPlan> plans;
  if (call.reduces) {
    plans = PlanReductions(hosts, call.counts.data(), ElementsOf(call.dtype, call.op));
  }
  std::unique_ptr<CallProgram> program;
  if (!call.reduces) {
    program = std::make_unique<GatherProgram>(hosts, call);
  } else if (plans.empty()) {
    program = std::make_unique<SliceProgram>(hosts, call);
  } else {
    program = std::make_unique<StageProgram>(hosts, call, plans);
  }
  Machines machines(hosts, call.costs);
  COLLOPS_CHECK_ARG(machines.Run(program.get()), ERROR_RT_FAIL,
                    "the simulated ranks wait for each other for ever");
  prediction->time_us = machines.time_us();
  prediction->hosts = machines.hosts();
  prediction->link_bytes = machines.link_bytes();
  const Memory memory(hosts, call, plans);
  for (int host = 0; host < hosts.hosts(); ++host) prediction->memory.push_back(memory.Of(host));
  return Ok();
}

}  // namespace collops::ucx
