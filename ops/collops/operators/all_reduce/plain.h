#pragma once

#include <memory>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// all_reduce: out may be x itself.
std::shared_ptr<const PlainPlan> PlanAllReduce(ReduceOp op);

}  // namespace collops
