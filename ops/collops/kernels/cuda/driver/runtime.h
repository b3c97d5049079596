#pragma once

#include <cstdint>
#include <memory>

#include "collops/kernels/cuda/driver/api.h"
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

}  // namespace collops::cuda
