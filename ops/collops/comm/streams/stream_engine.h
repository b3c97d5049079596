#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/comm/control/control.h"
#include "collops/comm/streams/calls_on_streams.h"
#include "collops/core/status.h"

namespace collops {

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

  CallsOnStreams& calls() { return calls_; }
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
  CallsOnStreams calls_;
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

// The name of first contact in agreements and messages, and of the call in which a rank refuses it.
inline constexpr char kFirstContact[] = "first contact";

}  // namespace collops
