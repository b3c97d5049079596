#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "collops/comm/call.h"
#include "collops/comm/streams/in_flight.h"
#include "collops/core/status.h"

namespace collops {

// The calls of one communicator that are on streams of a device: what they keep alive, and their
// names for errors that are found later. One thread at a time, with that device as the thread's
// current one; but KnownAge() from any. Only Drain() waits.
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

  // Seconds since the oldest call was put on its stream of which it is not known that it has ended;
  // 0 if all have. From any thread: no device is asked.
  double KnownAge() const;

  // Whether no call is left that has not ended. True if their state cannot be asked any more.
  bool IsIdle();
  Status Drain(const Deadline& deadline);
  bool empty() const { return in_flight_.empty(); }
  bool has_graphs() const { return in_flight_.has_graphs(); }

 private:
  void NoteOldest();

  InFlight in_flight_;
  // When the oldest call of KnownAge() was put on its stream, as Clock counts; 0: all have ended.
  std::atomic<int64_t> oldest_{0};
};

}  // namespace collops
