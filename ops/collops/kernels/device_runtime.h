#pragma once

#include <memory>

#include "collops/core/status.h"

namespace collops::kernels {

// The events and captured graphs of one device, implemented with its vendor's runtime. A backend
// owns it. One thread at a time, with that device as the thread's current device; nothing here
// waits.
class DeviceRuntime {
 public:
  using Stream = void*;
  using Event = void*;
  using Graph = void*;

  // How far a stream has come: past an event, or not yet.
  enum class Progress { kReached, kAhead, kUnknown };

  virtual ~DeviceRuntime() = default;

  virtual Status CreateEvent(Event* event) = 0;
  // Puts the event behind all work on the stream. An event that was reached may be used again.
  virtual Status RecordEvent(Event event, Stream stream) = 0;
  // kUnknown if the runtime returns an error.
  virtual Progress QueryEvent(Event event) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // The graph into which the stream's calls are captured instead of being run, or null.
  virtual Status FindGraph(Stream stream, Graph* graph) = 0;
  // Keeps `kept` alive until the graph is destroyed; until the process ends, if the runtime does
  // not report that.
  virtual void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) = 0;
};

}  // namespace collops::kernels
