#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/call.h"
#include "collops/comm/communicator.h"
#include "collops/comm/control/control.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/kernels/device_runtime.h"

// What a call's counts, which every rank knows, say of the calls of a vendor's library that it can
// be made of.
namespace collops {

// Whether the blocks have one size and lie one after the other from 0 on.
bool AreEven(const int64_t* counts, const int64_t* displs, int rank_size);

bool AreZero(const int64_t* counts, int rank_size);

// Whether only one of several ranks has elements.
bool HasOneOwner(const int64_t* counts, int rank_size);

using kernels::DeviceRuntime;

// The calls of one communicator that are on streams of a device. Keeps alive what their work needs
// after they have returned: plans, counts, staging. Each object is kept until an event behind the
// call's work is reached; for a captured call, as long as its graph. What cannot be known to be
// past is kept until the process ends, so nothing is destroyed under running work. One thread at a
// time, with that device as the thread's current one; but KnownAge() from any. Only Drain() waits.
class CallsInFlight {
 public:
  explicit CallsInFlight(DeviceRuntime* runtime)
      : runtime_(runtime), captured_(std::make_shared<const char>()) {}
  // Does not wait: what was not drained is kept until the process ends.
  ~CallsInFlight();
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  // Keeps `kept` alive for the work that is on `stream` now. Called after the last step of a call,
  // also of one that failed half way; `name` and `number` are the call's, for errors that are found
  // later. With a null `kept`, Drain() waits for that work. Calls Reap() first, unless the stream
  // is captured: then no event is queried and none is made. After an error `kept` is kept until the
  // process ends.
  Status Keep(DeviceRuntime::Stream stream, KeepAlive kept, const char* name, uint64_t number);

  // Whether the stream is captured.
  Status FindCapture(DeviceRuntime::Stream stream, bool* is_captured) const;

  // Releases what is past. Returns the state of the rest; kReached if nothing is left.
  DeviceRuntime::Progress Reap();

  // Streams run their calls in order, so the first call that has not ended is the one that failed,
  // or waits behind it: the name of that call of each stream, empty if all have ended.
  std::string NamesAhead();

  // Seconds since the oldest call was put on its stream of which it is not known that it has ended;
  // 0 if all have. From any thread: no device is asked.
  double KnownAge() const;

  // Waits until all work is past, then destroys the events. An error if that cannot be known by the
  // deadline, or a captured graph can still be replayed; what is not past is kept until the process
  // ends.
  Status Drain(const Deadline& deadline);

  // Whether Drain() has nothing to do: no work and no events. What graphs keep does not count.
  bool empty() const { return lines_.empty() && free_events_.empty(); }

  // Whether a captured graph exists, whose replays nobody sees.
  bool has_graphs() const { return captured_.use_count() > 1; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Work {
    DeviceRuntime::Event event;
    KeepAlive kept;
    const char* name;
    uint64_t number;
    Clock::time_point begin;
  };
  // The work of one stream, in order: work behind an event that is not reached is not past either.
  struct Line {
    DeviceRuntime::Stream stream;
    std::deque<Work> works;
  };

  Status Mark(DeviceRuntime::Stream stream, DeviceRuntime::Event* event);
  Status WaitForAll(const Deadline& deadline);
  void NoteOldest();

  DeviceRuntime* const runtime_;
  std::vector<Line> lines_;
  std::vector<DeviceRuntime::Event> free_events_;
  KeepAlive captured_;     // shared with what graphs keep alive
  bool unmarked_ = false;  // some work has no event, so its end cannot be known
  // When the oldest call of KnownAge() was put on its stream, as Clock counts; 0: all have ended.
  std::atomic<Clock::rep> oldest_{0};
};

// One rank's part of a vendor's library that connects devices, as StreamCommunicator uses it, and
// the calls that it has put on streams. Owned by the communicator. One thread at a time; but
// Release() from any, and connected(), WaitingS() and AbortCalls() also while another function
// runs. Only Meet() and Release() wait.
class StreamEngine {
 public:
  explicit StreamEngine(kernels::DeviceRuntime* runtime) : calls_(runtime) {}
  StreamEngine(const StreamEngine&) = delete;
  StreamEngine& operator=(const StreamEngine&) = delete;
  virtual ~StreamEngine() = default;

  // Its first calls may be made.
  virtual bool connected() const = 0;

  // The device that this thread has chosen.
  virtual Status FindDevice(int* device) const = 0;
  // For a thread that asks unbidden: its questions must not disturb a capture elsewhere.
  virtual void AllowCaptures() const {}
  // Runs `step` with that device as the thread's current one; after an error `step` was not run.
  virtual Status OnDevice(int device, const std::function<void()>& step) const = 0;

  // Connects the ranks, in the first call of every rank: waits for all ranks, at most the time-out.
  // The ranks agree on COLLOPS_CHECK (`compares`) on the way, if `control` has a board.
  virtual Status Meet(control::Control* control, bool compares, int device) = 0;

  // Of the ranks, once they have met.
  virtual DeviceShare device_share() const { return {}; }

  // Ok, or an error of an earlier call, as the library tells it. Does not wait.
  virtual Status AsyncError() = 0;
  // Ok, or that a call has failed on the device, which then makes no other one. Does not wait.
  virtual Status DeviceError() { return Ok(); }
  // AsyncError() with the calls that may be meant.
  Status CheckHealth();

  CallsInFlight& calls() { return calls_; }
  // Whether all calls have ended, or their state cannot be asked any more.
  bool IsIdle(int device);

  // Seconds that a call on a stream has waited for other ranks, also a replayed one; none if no
  // call waits, or if the host's memory does not show it. For the watcher thread, which compares
  // with what it saw the last time.
  virtual std::optional<double> WaitingS() { return std::nullopt; }
  // Whether the calls compare themselves when they run. The host then compares no captured one.
  virtual bool ComparesReplays() const { return false; }

  // Whether calls on streams can wait for ever, and end only by AbortCalls(). The watcher thread
  // then looks for lost ranks and for calls that have exceeded the time-out.
  virtual bool EndsByAbort() const { return false; }
  // Ends the calls that are on streams, whose results are then undefined. Does not wait for that.
  virtual void AbortCalls() {}

  // Lets go of the library's handle and of memory on the device. Returns whether all calls are
  // known to have ended; waits for that, at most Patience() seconds.
  bool Release(int device);

 protected:
  // How long Release() waits: a call that its peers have left never ends.
  virtual double Patience() const = 0;
  // With the device as the current one if `past`, which says that all calls have ended; what calls
  // may still use is never given back.
  virtual void LetGo(bool past) = 0;

 private:
  CallsInFlight calls_;
};

// How ranks lie on devices, which have told each other their homes, but for the blocks of their
// kernels.
template <class Home>
DeviceShare ShareOf(const std::vector<Home>& homes) {
  DeviceShare share;
  share.multiprocessors = homes[0].multiprocessors;
  for (const Home& home : homes) {
    int ranks = 0;
    int threads = 0;
    for (const Home& other : homes) {
      ranks += OnOneDevice(home, other) ? 1 : 0;
      threads += OnOneDevice(home, other) && InOneProcess(home, other) ? 1 : 0;
    }
    share.ranks = std::max(share.ranks, ranks);
    share.in_one_context = share.in_one_context || threads > 1;
    share.multiprocessors = std::min(share.multiprocessors, int{home.multiprocessors});
  }
  return share;
}

// What a split leaves in the subgroup's spec, which outlives the subgroup's Close: the handle of
// the vendor's group goes to the subgroup's engine in first contact, or ends at Close.
using PartInSpec = std::shared_ptr<void>;

// The name of first contact in agreements and messages, and of the call in which a rank refuses it.
inline constexpr char kFirstContact[] = "first contact";

}  // namespace collops
