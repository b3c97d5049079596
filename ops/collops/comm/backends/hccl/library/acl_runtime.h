#pragma once

#include <memory>

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/kernels/device_runtime.h"

namespace collops::hccl {

// An event that may be recorded again where the library has such.
Status CreateEvent(const Api& api, Event* event);

// Events and captured graphs of the ACL runtime. With a library that has no graphs, no stream is
// ever captured. Owned by an Engine; threads as in DeviceRuntime, but any thread may destroy a
// graph.
class AclRuntime : public kernels::DeviceRuntime {
 public:
  explicit AclRuntime(const Api& api) : api_(api) {}

  Status CreateEvent(Event* event) override;
  Status RecordEvent(Event event, Stream stream) override;
  Progress QueryEvent(Event event) override;
  void DestroyEvent(Event event) override;
  Status FindGraph(Stream stream, Graph* graph) override;
  void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) override;

 private:
  const Api& api_;
};

}  // namespace collops::hccl
