#pragma once

#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/operators/framework/signature.h"

namespace collops {

// The checks of InferShape that are the same for all operators, in the documented order.
Status CheckInputs(const OpSignature& signature, int rank_size,
                   const std::vector<TensorDesc>& inputs);

// The output shapes that follow from the inputs may be too large.
Status CheckOutputSizes(const OpSignature& signature, const std::vector<TensorDesc>& outputs);

// Checks that the call's outputs are the tensors in `want`.
Status CheckOutputs(const OpSignature& signature, const std::vector<TensorDesc>& want,
                    const std::vector<TensorView>& outputs);

}  // namespace collops
