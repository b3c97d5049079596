#pragma once

#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace [[gnu::visibility("default")]] collops {

// An operation that can pack a constant weight once, instead of in every call. Local. The weight
// stays the caller's, who must not change or free it as long as calls pass it (same address, shape
// and dtype); calls with another weight pack it each time. Packing another weight drops the first.
class Prepackable {
 public:
  virtual ~Prepackable() = default;
  virtual Status Prepack(const TensorView& weight) = 0;
};

}  // namespace collops
