#pragma once

#include <memory>
#include <string>

#include "collops/operators/plain/plain_plan.h"

namespace collops {

// broadcast, in place on x. `type` names an element type that travels as bytes.
Status PlanBroadcast(int64_t root, const std::string& type, int rank_size,
                     std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
