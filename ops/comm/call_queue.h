#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/control/control.h"
#include "core/status.h"

namespace collops {

class Messenger;
struct Batch;

// A call that was started. Made by the communicator; what it needs stays until its end, and is
// given back by the thread that lets go of it last or waits for it, never by the queue's own.
struct StartedCall {
  const char* name = "";
  std::function<Status()> body;     // of a call of the group, or of what must come before messages
  std::shared_ptr<Batch> messages;  // the messenger's
  // The queue's, behind its mutex.
  bool done = true;
  Status outcome;
  double limit_s = 0;  // from `begun_at` on; 0: the group's
  std::chrono::steady_clock::time_point begun_at;
};
using StartedHandle = std::shared_ptr<StartedCall>;

// The calls of one communicator rank that were started: they run one after the other in the order
// of Add(), in whatever thread waits for one of them, or else in a thread of the queue. That thread
// exists from the first started call to Stop() or the end of the group; it also looks after
// messages that nobody waits for, and sleeps when there is nothing to do. Owned by the
// communicator. Thread-safe. Wait() and Turn wait for calls, each of which ends by its own
// time-out.
class CallQueue {
 public:
  explicit CallQueue(control::Control* control);
  ~CallQueue() { Stop(); }
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Of the communicator, once it has one.
  void SetMessenger(Messenger* messenger);

  // Never waits for a call.
  Status Add(const StartedHandle& call);
  // Makes the thread, if there is none yet, for messages that the call `name` is about to begin.
  Status LookAfterMessages(const char* name);
  // The outcome of a call, run here if the queue's thread has not begun it. timeout_s: from when it
  // began; 0: the group's time-out alone. An interrupt ends the group.
  Status Wait(StartedCall* call, double timeout_s);
  bool Done(const StartedCall& call) const;
  // Whether this thread is inside a call of the queue.
  bool RunsHere() const { return running_here_ == this; }
  // The limit of the call that runs, if it has outlived it; else 0.
  double Overdue() const;

  // Ends the queue's thread after the call that it runs; the group has been ended. Calls that have
  // not begun get the error that ended it.
  void Stop();

  // A caller that does not go through the queue; one at a time.
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

  // A call that was not started: it waits here for those that were, and runs as long as this lives.
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

  // The thread.
  Status HaveThread(const char* name);
  void Work();
  void Wake();
  void RunHead(Lock* lock);
  // Whether nothing is left to do for the thread.
  bool IsOver() const;
  // Runs what comes first, or naps until something has changed. An interrupt ends the group, and
  // with it, soon, all calls.
  void Advance(Lock* lock, const char* name);
  void End(StartedCall* call, const Status& outcome);
  void EndAll(const Status& outcome);
  void ForgetEnded(Lock* lock);

  static thread_local CallQueue* running_here_;

  control::Control* control_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Messenger* messenger_ = nullptr;
  std::deque<StartedHandle> waiting_;
  StartedHandle current_;
  std::vector<StartedHandle> ended_;  // by the queue's thread, which lets go of none
  // These are set behind the mutex; a Turn ends without it, and looks for who waits afterwards.
  std::atomic<bool> has_waiting_{false};
  std::atomic<bool> runs_{false};     // a call, also one that was not started
  std::atomic<bool> calling_{false};  // a caller is here that does not go through the queue
  bool stopped_ = false;
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace collops
