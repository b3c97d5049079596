#pragma once

#include <memory>
#include <vector>

#include "collops/comm/backends/ucx/collectives.h"
#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/backends/ucx/reduction/reduction_plan.h"
#include "collops/comm/call.h"

namespace collops::ucx {

// ReduceScatterV by the plans of all owners.
std::unique_ptr<SliceReduction> ReduceByPlans(Link* link, std::vector<ReductionPlan> plans,
                                              const ReduceScatterVCall& call, Scratch* scratch);

}  // namespace collops::ucx
