#pragma once

#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/framework/signature.h"

namespace collops {

// The checks of infer_shape that need no operator's knowledge, in the order of the contract's
// table.
Status CheckInputs(const Signature& signature, int rank_size,
                   const std::vector<TensorDesc>& inputs);

// The shapes that follow from the inputs may themselves be too large.
Status CheckOutputSizes(const Signature& signature, const std::vector<TensorDesc>& outputs);

// The call's outputs are the tensors that the inputs ask for.
Status CheckOutputs(const Signature& signature, const std::vector<TensorDesc>& want,
                    const std::vector<TensorView>& outputs);

}  // namespace collops
