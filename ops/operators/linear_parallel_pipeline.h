#pragma once

#include "operators/linear_parallel_run.h"

namespace collops {

// Scratch memory of the pipeline besides packed rows, a block of the weight and a tile: this rank's
// sums of one strip of columns; and the rows that one AllGatherV brings.
int64_t SumBytes(const LinearPlan& plan);
int64_t GatherBytes(const LinearPlan& plan);

// LinearParallel for communicators without windows: AllGatherV of some rows after the other into
// packed rows, then for each strip of columns the product and its ReduceScatterV in float32. The
// same bits as over windows.
Status RunPipelineLinear(const LinearPlan& plan, const LinearTensors& tensors,
                         const Agreement& agreement, std::byte* workspace,
                         Communicator* communicator);

}  // namespace collops
