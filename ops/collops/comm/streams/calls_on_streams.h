#pragma once

#include <cstdint>
#include <string>

#include "collops/comm/call.h"
#include "collops/comm/streams/in_flight.h"
#include "collops/core/status.h"

namespace collops {

// The calls of one communicator that are on streams of a device: what they keep alive, and their
// names for errors that are found later. One thread at a time, with that device as the thread's
// current one. Only Drain() waits.
class CallsOnStreams {
 public:
  explicit CallsOnStreams(kernels::DeviceRuntime* runtime) : in_flight_(runtime) {}

  // Keeps `kept` alive until the work that is on `stream` now is done; also after a call that
  // failed half way. `name` and `number` are the call's. Releases what finished calls needed.
  Status Keep(kernels::DeviceRuntime::Stream stream, KeepAlive kept, const char* name,
              uint64_t number);

  // Whether the stream is captured.
  Status FindCapture(kernels::DeviceRuntime::Stream stream, bool* is_captured) const {
    return in_flight_.FindCapture(stream, is_captured);
  }

  // Streams run their calls in order, so the first call that has not ended is the one that failed,
  // or waits behind it: the name of that call of each stream, empty if all have ended.
  std::string NamesAhead();

  // Seconds since the oldest call that has not ended was put on its stream; 0 if all have ended.
  double OldestAge();

  // Whether no call is left that has not ended. True if their state cannot be asked any more.
  bool IsIdle() { return in_flight_.Reap() != kernels::DeviceRuntime::Progress::kAhead; }
  Status Drain(const Deadline& deadline) { return in_flight_.Drain(deadline); }
  bool empty() const { return in_flight_.empty(); }
  bool has_graphs() const { return in_flight_.has_graphs(); }

 private:
  InFlight in_flight_;
};

}  // namespace collops
