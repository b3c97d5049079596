#pragma once

#include "operators/linear_parallel_run.h"

namespace collops {

// LinearParallel of a rank that needs nobody: its own x times its own weight.
void RunLocalLinear(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace);

}  // namespace collops
