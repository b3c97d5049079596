#pragma once

#include <functional>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/api.h"

namespace collops::cuda {

// The last call of every communicator of this process that is on a stream. A kernel that waits for
// its peers may keep the driver from allocating or mapping memory, and these in turn the peers from
// launching theirs; so such a step first waits here until no kernel of ours runs, on any GPU of the
// process: memory of one is mapped for its peers as well. Captured calls are not known here.
// Thread-safe.
class RunningCalls {
 public:
  // The event lies behind the last call of `owner`. It is the owner's, who says when it is gone.
  static void Note(const void* owner, Event event);
  static void Forget(const void* owner);
  // Waits until all are past, as long as `may_wait` is Ok.
  static Status Await(const DriverApi& driver, const std::function<Status()>& may_wait);
};

}  // namespace collops::cuda
