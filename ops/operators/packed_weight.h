#pragma once

#include <memory>

#include "core/status.h"
#include "core/tensor.h"

namespace collops {

// A weight in the order of the GEMM's kernels, and which tensor it was packed from.
class PackedWeight {
 public:
  // `weight` is [n, k] or, without trans_weight, [k, n], or one such matrix in 3 dims; it has
  // passed the checks. ERROR_OUT_OF_HOST_MEMORY if there is no room.
  static Status Pack(const TensorView& weight, bool trans_weight,
                     std::shared_ptr<const PackedWeight>* packed);

  // The packed bytes if `weight` is the tensor that was packed, else null.
  const void* For(const TensorView& weight) const;
  bool trans_weight() const { return trans_weight_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };

  PackedWeight() = default;

  TensorDesc desc_;
  const void* source_ = nullptr;
  bool trans_weight_ = true;
  std::unique_ptr<void, Free> bytes_;
};

}  // namespace collops
