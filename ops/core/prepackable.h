#pragma once

#include "core/status.h"
#include "core/tensor.h"

namespace collops {

// An operation that can bring a constant weight into its kernels' order once, instead of in every
// call. Local. The weight stays the caller's: it must keep its memory and its values for as long as
// calls pass it, that is the same address, shape and dtype; calls with another weight are as
// before. Packing another one forgets the first.
class Prepackable {
 public:
  virtual ~Prepackable() = default;
  virtual Status Prepack(const TensorView& weight) = 0;
};

}  // namespace collops
