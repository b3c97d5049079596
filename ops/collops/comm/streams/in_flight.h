#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/kernels/device_runtime.h"

namespace collops {

using kernels::DeviceRuntime;

// Keeps alive what work on a device needs after its call has returned: plans, counts, staging. Each
// object is kept until an event behind the call's work is reached; for a captured call, as long as
// its graph. What cannot be known to be past is kept until the process ends, so nothing is
// destroyed under running work. One per communicator on a device, which owns it; one thread at a
// time. Only Drain() waits.
class InFlight {
 public:
  explicit InFlight(DeviceRuntime* runtime);
  // Does not wait: what was not drained is kept until the process ends.
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  // Keeps `kept` alive for the work that is on `stream` now. Called after the last step of a call,
  // also of one that failed half way. With a null `kept`, Drain() waits for that work. Calls Reap()
  // first, unless the stream is captured: then no event is queried and none is made. After an error
  // `kept` is kept until the process ends.
  Status Keep(DeviceRuntime::Stream stream, std::shared_ptr<const void> kept);

  Status FindCapture(DeviceRuntime::Stream stream, bool* is_captured) const;

  // Releases what is past. Returns the state of the rest; kReached if nothing is left.
  DeviceRuntime::Progress Reap();

  // Calls `visit`, for each stream, with what the oldest work keeps alive that was not past at the
  // last Reap().
  template <typename Visit>
  void VisitOldest(Visit&& visit) const {
    for (const Line& line : lines_) {
      if (!line.works.empty()) visit(line.works.front().kept.get());
    }
  }

  // Waits until all work is past, then destroys the events. An error if that cannot be known by the
  // deadline, or a captured graph can still be replayed; what is not past is kept until the process
  // ends.
  Status Drain(const Deadline& deadline);

  // Whether Drain() has nothing to do: no work and no events. What graphs keep does not count.
  bool empty() const { return lines_.empty() && free_events_.empty(); }

  // Whether a captured graph exists, whose replays nobody sees.
  bool has_graphs() const { return captured_.use_count() > 1; }

 private:
  struct Work {
    DeviceRuntime::Event event;
    std::shared_ptr<const void> kept;
  };
  // The work of one stream, in order: work behind an event that is not reached is not past either.
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
  std::shared_ptr<const void> captured_;  // shared with what graphs keep alive
  bool unmarked_ = false;                 // some work has no event, so its end cannot be known
};

}  // namespace collops
