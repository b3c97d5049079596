#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "comm/device_runtime.h"
#include "core/deadline.h"
#include "core/status.h"

namespace collops {

// What the work on a device needs after its call has returned: plans, counts, staging. It is held
// until an event behind the call's work is reached; of a captured call, as long as its graph. What
// nobody can tell to be past is held until the process ends, so nothing is destroyed under running
// work. One per communicator on a device, and owned by it; one thread at a time. Only Drain()
// waits.
class InFlight {
 public:
  explicit InFlight(DeviceRuntime* runtime);
  // Does not wait: what was not drained is held until the process ends.
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // Holds `kept` for the work that is on `stream` now. Called after the last step of a call, also
  // of one that failed half way. A null `kept` only lets Drain() wait for that work. Reaps first,
  // unless the stream is captured: then no event is asked and none is made. After an error `kept`
  // is held until the process ends.
  Status Keep(DeviceRuntime::Stream stream, std::shared_ptr<const void> kept);

  // Lets go of what is past. What the runtime says of the rest: kReached if there is none.
  DeviceRuntime::Progress Reap();

  // Waits until all work is past, then destroys the events. An error where that cannot be told by
  // the deadline, or a captured graph can still be replayed; what is not past is held until the
  // process ends.
  Status Drain(const Deadline& deadline);

  // Whether there is nothing to drain, neither work nor events; what graphs hold does not count.
  bool empty() const { return lines_.empty() && free_events_.empty(); }

 private:
  struct Work {
    DeviceRuntime::Event event;
    std::shared_ptr<const void> kept;
  };
  // A stream's work, in its order: what is behind an event that is not reached is not past either.
  struct Line {
    DeviceRuntime::Stream stream;
    std::deque<Work> works;
  };

  Status Mark(DeviceRuntime::Stream stream, DeviceRuntime::Event* event);
  Line* FindLine(DeviceRuntime::Stream stream);
  Status WaitForAll(const Deadline& deadline);

  DeviceRuntime* const runtime_;
  std::vector<Line> lines_;
  std::vector<DeviceRuntime::Event> free_events_;
  std::shared_ptr<const void> captured_;  // shared with what graphs hold
  bool unmarked_ = false;                 // some work has no event, so nobody can tell its end
};

}  // namespace collops
