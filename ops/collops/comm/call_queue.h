#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collops/comm/control/control.h"
#include "collops/core/status.h"

namespace collops {

class Messenger;
struct Batch;

// A started call. Created by the communicator; what it captured is destroyed after its end, by the
// last thread that releases it or a thread that waits for it, never by the queue's thread.
struct StartedCall {
  const char* name = "";
  std::function<Status()> body;     // of a group call, or of what must precede messages
  std::shared_ptr<Batch> messages;  // set for Send and Recv; the messenger's
  std::vector<int> sources;         // of messages on a stream; set before the call is returned
  // Guarded by the queue's mutex.
  bool done = true;
  Status outcome;
  double limit_s = 0;  // from `begun_at` on; 0: the group's time-out
  std::chrono::steady_clock::time_point added_at;
  std::chrono::steady_clock::time_point begun_at;
};
using StartedHandle = std::shared_ptr<StartedCall>;

// The started calls of one rank of a communicator. They run one after the other in the order of
// Add(), in a thread that waits for one of them, or in the queue's own thread. That thread exists
// from the first started call until Stop() or the end of the group; it also moves messages that
// nobody waits for, and sleeps when there is nothing to do. While calls are waited for soon after
// their start, it looks for them now and then, so that a start wakes no thread. Owned by the
// communicator. Thread-safe.
// Wait() and Turn wait for calls, each of which has a time-out.
class CallQueue {
 public:
  explicit CallQueue(control::Control* control);
  ~CallQueue() { Stop(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Called once the communicator has a messenger.
  void SetMessenger(Messenger* messenger);

  // Does not wait for a call.
  Status Add(const StartedHandle& call);
  // Makes the queue's thread, if there is none, for messages that the call `name` will begin.
  Status LookAfterMessages(const char* name);
  // The outcome of a call, which runs here if the queue's thread has not begun it. timeout_s counts
  // from the call's beginning; 0: only the group's time-out. An interrupt ends the group.
  Status Wait(StartedCall* call, double timeout_s);
  bool Done(const StartedCall& call) const;
  // Whether this thread is inside a call of the queue.
  bool RunsHere() const { return running_here_ == this; }
  // The limit of the call that runs, if the call has exceeded it; else 0.
  double Overdue() const;

  // Ends the queue's thread after the call that it runs. The group has ended before; calls that
  // have not begun get its failure.
  void Stop();

  // A call that bypasses the queue; one at a time.
  class Caller {
   public:
    explicit Caller(CallQueue* queue);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
    bool alone() const { return alone_; }

   private:
    CallQueue* queue_;
    bool alone_;
  };

  // A call that was not started: waits here for the started ones, and runs while this object lives.
  class Turn {
   public:
    Turn(CallQueue* queue, const char* name);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    const Status& status() const { return status_; }

   private:
    CallQueue* queue_;
    Status status_;
    CallQueue* outer_ = nullptr;
  };

 private:
  using Lock = std::unique_lock<std::mutex>;

  // The queue's thread.
  Status HaveThread(const char* name);
  void Work();
  void Sleep(Lock* lock);
  bool HeadIsNew() const;
  void Wake();
  void RunHead(Lock* lock);
  // Whether the queue's thread has nothing left to do.
  bool IsOver() const;
  // Runs the next call, or sleeps until something has changed. An interrupt ends the group, and
  // thereby all calls.
  void Advance(Lock* lock, const char* name);
  void End(StartedCall* call, const Status& outcome);
  void EndAll(const Status& outcome);
  void ForgetEnded(Lock* lock);

  static thread_local CallQueue* running_here_;

  control::Control* control_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a call has ended, for threads that wait
  std::condition_variable work_;     // for the queue's thread
  Messenger* messenger_ = nullptr;
  std::deque<StartedHandle> waiting_;
  StartedHandle current_;
  std::vector<StartedHandle> ended_;  // the queue's thread must not destroy these
  // Set with the mutex locked; a Turn ends without the mutex, and then reads has_waiting_.
  std::atomic<bool> has_waiting_{false};
  std::atomic<bool> runs_{false};     // a call runs, also one that was not started
  std::atomic<bool> calling_{false};  // a Caller exists
  bool stopped_ = false;
  bool napping_ = false;        // the queue's thread will look for calls soon, unasked
  int64_t run_by_waiters_ = 0;  // calls that ran in the thread that waited for them
  int64_t seen_run_by_waiters_ = 0;
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace collops
