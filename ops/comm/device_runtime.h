#pragma once

#include <memory>

#include "core/status.h"

namespace collops {

// The events and captured graphs of one device, as far as InFlight needs them. A backend implements
// it on its device's runtime and owns it. One thread at a time, with that device as the thread's
// own; nothing here waits.
class DeviceRuntime {
 public:
  using Stream = void*;
  using Event = void*;
  using Graph = void*;

  // Where a stream is that shall come to an event.
  enum class Progress { kReached, kAhead, kUnknown };

  virtual ~DeviceRuntime() = default;

  virtual Status CreateEvent(Event* event) = 0;
  // Puts the event behind all that is on the stream. It may be one that was reached before.
  virtual Status RecordEvent(Event event, Stream stream) = 0;
  // kUnknown where the runtime answers with an error.
  virtual Progress QueryEvent(Event event) = 0;
  virtual void DestroyEvent(Event event) = 0;

  // The graph into which the stream's calls are captured instead of run, or null.
  virtual Status FindGraph(Stream stream, Graph* graph) = 0;
  // Holds `kept` until the graph is destroyed; where the runtime does not tell, until the process
  // ends.
  virtual void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) = 0;
};

}  // namespace collops
