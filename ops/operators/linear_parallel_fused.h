#pragma once

#include "operators/linear_parallel_run.h"

namespace collops {

// LinearParallel over windows: multiplies the rows that are there while others arrive, and sums
// partial products as they come. No barrier inside.
Status RunFusedLinear(const LinearPlan& plan, const LinearTensors& tensors,
                      const Agreement& agreement, std::byte* workspace, Communicator* communicator);

}  // namespace collops
