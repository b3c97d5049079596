#pragma once

#include <memory>
#include <string>

#include "operators/plain/plain_plan.h"

namespace collops {

// broadcast, in place: x alone. `type` names elements that travel as bytes.
Status PlanBroadcast(int64_t root, const std::string& type, int rank_size,
                     std::shared_ptr<const PlainPlan>* plan);

}  // namespace collops
