#pragma once

#include <cstddef>
#include <vector>

#include "comm/backends/ucx/link.h"
#include "comm/backends/ucx/reduction/reduction_plan.h"
#include "comm/call.h"

namespace collops::ucx {

// The plans of a call, by owner. Empty if every slice crosses as it is in the best ones, or if the
// slices are so small that one trip between the hosts matters more than bytes. The same on every
// rank.
std::vector<ReductionPlan> PlanReductions(const HostMap& hosts, const ReduceScatterVCall& call);

// ReduceScatterV by these plans. `scratch` is kept between calls.
Status ReduceByPlans(Link* link, const std::vector<ReductionPlan>& plans,
                     const ReduceScatterVCall& call, std::vector<std::byte>* scratch);

}  // namespace collops::ucx
