#pragma once

#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/signature.h"

namespace collops {

// The checks of infer_shape that need no operator's knowledge, in the order of the contract's
// table.
Status CheckInputs(const Signature& signature, int rank_size,
                   const std::vector<TensorDesc>& inputs);

// The shape that follows from the inputs may itself be too large.
Status CheckOutputSize(const Signature& signature, const TensorDesc& output);

// The call's one output is the tensor that the inputs ask for.
Status CheckOutput(const Signature& signature, const TensorDesc& want,
                   const std::vector<TensorView>& outputs);

}  // namespace collops
