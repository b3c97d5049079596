#pragma once

#include <memory>
#include <vector>

#include "comm/backends/ucx/collectives.h"
#include "comm/backends/ucx/link.h"
#include "comm/backends/ucx/reduction/reduction_plan.h"
#include "comm/call.h"

namespace collops::ucx {

// The plans of a call, by owner. Empty if every slice crosses as it is in the best ones, or if the
// slices are so small that one trip between the hosts matters more than bytes. The same on every
// rank.
std::vector<ReductionPlan> PlanReductions(const HostMap& hosts, const ReduceScatterVCall& call);

// ReduceScatterV by these plans.
std::unique_ptr<SliceReduction> ReduceByPlans(Link* link, std::vector<ReductionPlan> plans,
                                              const ReduceScatterVCall& call, Scratch* scratch);

}  // namespace collops::ucx
