#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/api.h"
#include "collops/kernels/cuda/memory/block.h"

namespace collops::cuda {

// This process's memory of GPUs for tensors. It is taken from the driver in slabs, because a call
// of the driver that takes or frees memory may wait for kernels, and a kernel for a rank of this
// process. A block comes back when no one holds it; the next one of its size gets it once the work
// on streams that used it is past. Thread-safe.
class Pool {
 public:
  // Waits until the driver may be called for memory; an error keeps it from being called.
  using Before = std::function<Status()>;

  // Memory of at least `bytes` > 0 bytes, a multiple of kBlockBytes in address.
  static Status Take(const DriverApi& driver, int device, int64_t bytes, const Before& before,
                     std::shared_ptr<Block>* block);
  // Frees the slabs of which no one holds a block and no stream will use one; their bytes.
  static Status Empty(const DriverApi& driver, const Before& before, int64_t* freed);
};

}  // namespace collops::cuda
