#pragma once

#include <memory>
#include <vector>

#include "comm/backends/ucx/collectives.h"
#include "comm/backends/ucx/link.h"
#include "comm/backends/ucx/reduction/reduction_plan.h"
#include "comm/call.h"

namespace collops::ucx {

// ReduceScatterV by the plans of all owners.
std::unique_ptr<SliceReduction> ReduceByPlans(Link* link, std::vector<ReductionPlan> plans,
                                              const ReduceScatterVCall& call, Scratch* scratch);

}  // namespace collops::ucx
