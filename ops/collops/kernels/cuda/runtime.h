#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/device_runtime.h"

namespace collops::cuda {

// Events and captured graphs of CUDA's driver. Threads as in DeviceRuntime, but any thread may
// destroy a graph.
class Runtime : public kernels::DeviceRuntime {
 public:
  explicit Runtime(const DriverApi& api) : api_(api) {}

  Status CreateEvent(Event* event) override;
  Status RecordEvent(Event event, Stream stream) override;
  Progress QueryEvent(Event event) override;
  void DestroyEvent(Event event) override;
  Status FindGraph(Stream stream, Graph* graph) override;
  // The number of the capture that the stream is part of, which no other one has, and its graph; 0
  // and null if it is not captured.
  Status FindCapture(Stream stream, uint64_t* number, Graph* graph);
  // A user object of CUDA holds `kept`: the graph, its clones and what was instantiated from them
  // share it, and the last of them lets it go.
  void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) override;

 protected:
  const DriverApi& api_;
};

// The last call of every communicator of this process that is on a stream. A kernel that waits for
// its peers may keep the driver from allocating or mapping memory, or loading code, and these in
// turn the peers from launching theirs; so such a step first waits here until no kernel of ours
// runs, on any GPU of the process: memory of one is mapped for its peers as well. Captured calls
// are not known here. Thread-safe.
class RunningCalls {
 public:
  // The event lies behind the last call of `owner`, on the device of the thread's current context.
  // It is the owner's, who says when it is gone.
  static void Note(const DriverApi& driver, const void* owner, Event event);
  static void Forget(const void* owner);
  // Held while a call is launched on a device and noted.
  class Launching {
   public:
    explicit Launching(int device);

   private:
    const std::shared_lock<std::shared_mutex> lock_;
  };

  // Does `step` while none runs on the device, and none is launched there; waits for that, but not
  // longer than `limit_s`, and not once `is_harmless()`: another thread has done its part since,
  // and what that thread has launched may wait for this one.
  static void DoBetween(const DriverApi& driver, int device, double limit_s,
                        const std::function<bool()>& is_harmless,
                        const std::function<void()>& step);
  // Waits until all are past, as long as `may_wait` is Ok.
  static Status Await(const DriverApi& driver, const std::function<Status()>& may_wait);
};

}  // namespace collops::cuda
