#pragma once

#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/linear_parallel_param.h"

namespace collops {

// What creation refuses of the fields that LinearParallel alone has: types and quantisation that do
// not work here, and what ATB's mc2 does not take.
Status CheckLinearKind(const LinearParallelParam& param);

// The shapes of x, weight and residual against each other. They have the right numbers of dims.
Status CheckLinearShapes(const LinearParallelParam& param, const std::vector<TensorDesc>& inputs);

}  // namespace collops
