#pragma once

#include <atomic>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/control/group.h"
#include "collops/comm/control/step.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/rank_set.h"
#include "collops/core/deadline.h"
#include "collops/core/process/fork_generation.h"

namespace collops::control {

// Whether the ranks of a group may be on several hosts.
enum class Reach { kOneHost, kHosts };

// Group state of one communicator: first contact, agreement on calls, refusal, failure, loss of a
// rank, leaving, one thread at a time. The same for all backends, which only move bytes. Owned by
// its communicator. Not thread-safe, except Abort(), Close() and failed(). Every wait ends at the
// time-out.
class Control {
  // Marks this rank as in a call, unless it already is.
  class Busy {
   public:
    explicit Busy(std::atomic<bool>* flag) : flag_(flag), mine_(!flag->exchange(true)) {}
    ~Busy() {
      if (mine_) flag_->store(false, std::memory_order_release);
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    bool mine() const { return mine_; }

   private:
    std::atomic<bool>* const flag_;
    const bool mine_;
  };

 public:
  // For the ranks of spec's job or, with COMM_MULTI_THREAD, of this process.
  static Status Create(const GroupSpec& spec, const SegmentShape& of_backend,
                       std::shared_ptr<Control>* control, Reach reach = Reach::kOneHost);
  // Instead of Create(), for a rank that cannot come: those that wait for it elsewhere get
  // `reason`. The first time it waits until there is somebody who can be told, at most ten seconds.
  static void Decline(const GroupSpec& spec, const Status& reason);
  // Begins first contact, which creates the memory that the ranks of this host share: the board,
  // and what the backend puts behind it. Only tests set `steps_before`: the first step
  // then follows that number.
  Control(const GroupSpec& spec, const JobIdentity& job, const SegmentShape& of_backend,
          uint64_t steps_before = 0);
  // Begins `meeting`.
  Control(const GroupSpec& spec, std::unique_ptr<Meeting> meeting, uint64_t steps_before = 0);
  // For a group that has met: `group` is the result of Meeting::Complete().
  Control(const GroupSpec& spec, Group group);
  // For a group whose ranks a vendor's engine connects. It has no board.
  explicit Control(const GroupSpec& spec);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  const GroupSpec& spec() const { return spec_; }
  // May be called from any thread; applies to later calls.
  double timeout_s() const { return timeout_s_.load(std::memory_order_relaxed); }
  void set_timeout_s(double timeout_s) { timeout_s_.store(timeout_s, std::memory_order_relaxed); }
  bool has_board() const { return meeting_ != nullptr || connection_ != nullptr; }

  // This rank's only call: from Begin(), which checks that it may begin and completes first
  // contact, to Release(), at the latest when it is destroyed. All waits of the call, first contact
  // included, have one deadline.
  class Call {
   public:
    explicit Call(Control* control) : control_(control) {}
    ~Call() { Release(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Ok, or why the call may not run.
    Status Begin(const char* name) {
      // First, because in a child of fork() a call of the parent may seem to be running.
      if (control_->Inherited()) return control_->CheckUsable(name);
      if (control_->busy_.exchange(true)) return control_->SecondThread(name);
      runs_ = true;
      if (control_->failed()) return control_->CheckUsable(name);
      std::optional<Deadline> deadline;
      if (control_->connection_ == nullptr && control_->has_board()) {
        deadline = Deadline::After(control_->timeout_s());
        COLLOPS_RETURN_IF_ERROR(control_->Connect(name, *deadline));
      }
      control_->keeps_group_ = false;
      step_before_ = control_->step_number();
      if (control_->connection_ != nullptr) control_->connection_->step.BeginCall(deadline);
      return Ok();
    }
    // Whether it is this rank's call.
    bool runs() const { return runs_; }
    // Returns what the call returns. An error that is neither a refusal nor local ends the group.
    Status End(Status status);
    void Release() {
      if (runs_) control_->busy_.store(false, std::memory_order_release);
      runs_ = false;
    }

   private:
    Control* const control_;
    uint64_t step_before_ = 0;
    bool runs_ = false;
  };

  // Returns what `body` returns; turns an exception, such as bad_alloc, into a Status, and sets
  // *thrown.
  template <typename Body>
  static Status Catch(const char* name, Body&& body, bool* thrown = nullptr) {
    try {
      return body();
    } catch (const std::exception& error) {
      if (thrown != nullptr) *thrown = true;
      return Thrown(name, error);
    }
  }

  // Runs `body`, which must make no call, if no call runs.
  template <typename Body>
  Status Alone(const char* name, Body&& body) {
    if (Inherited()) return CheckUsable(name);
    const Busy busy(&busy_);
    return busy.mine() ? body() : SecondThread(name);
  }

  // The functions below are for the body of a call.

  // The step that Begin() starts. Needs a board.
  Step& step() { return connection_->step; }
  uint64_t step_number() const { return connection_ == nullptr ? 0 : connection_->step.number(); }
  Endpoint& endpoint() { return connection_->endpoint; }
  std::byte* backend_memory();
  // Waits call `drain` before they sleep.
  void set_drain(std::function<void()> drain) { duties_.drain = std::move(drain); }

  void Drain() const {
    if (duties_.drain) duties_.drain();
  }
  // Waits call `progress_messages` after spinning: it moves messages and says whether any are under
  // way. Those that do not sleep on the doorbell then call `wake_condition` before they sleep.
  void set_progress_messages(std::function<MessageProgress()> progress_messages,
                             std::function<WakeCondition()> wake_condition) {
    duties_.progress_messages = std::move(progress_messages);
    duties_.wake_condition = std::move(wake_condition);
  }
  const WaitDuties& duties() const { return duties_; }
  // Waits call `overdue` before they sleep: it returns 0, or the limit that the call has exceeded.
  void set_overdue(std::function<double()> overdue) { duties_.overdue = std::move(overdue); }

  // A step in which the ranks agree and no data moves.
  Status Agree(const Agreement& agreement);
  // As Agree(), and every rank gets `bytes` of every rank: all[r] = mine of rank r.
  Status Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all);
  // Waits until each rank of `pairs` has come to what it does with this one: this rank's mark and
  // the other's (Endpoint::MarkPair()). Other ranks take no part.
  struct PairMark {
    int peer;
    uint8_t mine;
    uint8_t theirs;
  };
  Status MeetPairs(const char* name, const std::vector<PairMark>& pairs);
  // Takes part in the next step with a refusal: the other ranks get the reason's message at once.
  Status Refuse(const char* name, const Status& reason);
  // Marks an error of this call as local to this rank: it does not end the group. Returns `error`.
  Status KeepGroupAfter(const Status& error) {
    keeps_group_ = true;
    return error;
  }
  // First contact is complete, also in the backend's engine.
  void MarkMet();
  // Adds to the message of a time-out in first contact which other groups have not met.
  Status WithOthersPending(const Status& status) const;
  // Without waiting: an error if a rank has left or ended, or a call has failed. Ok without a
  // board. `call`: the number that the message of a loss has, 0: none. On streams a rank may leave
  // once its part of all calls that this rank has begun is done, unless it is one of `needed`.
  Status Peek(const char* name, uint64_t call = 0, const RankSet& needed = {}) const;

  // For a backend whose calls go on on streams when they have returned: how many this rank has
  // begun, and whether all of them have ended, which the other ranks read when it leaves.
  void SetCallsOnStreams(uint64_t calls) { calls_on_streams_ = calls; }
  uint64_t calls_on_streams() const { return calls_on_streams_; }
  void MarkStreamsEnded() { streams_ended_ = true; }
  bool streams_ended() const { return streams_ended_; }

  // Ends the group with `status` from `step` on; earlier steps are complete on all ranks.
  Status Fail(const Status& status, uint64_t step);
  // The same beside a call of another thread, which ends: from the step on that this rank has not
  // finished. Needs a board whose ranks have met.
  Status FailUnfinished(const Status& status);

  // Where the ranks of a group on several hosts reach this one; null once it has left. From any
  // thread.
  std::shared_ptr<Lobby> lobby() const;

  // From any thread. Abort() ends the calls of all ranks. Close() leaves the group: the other ranks
  // get `reason` when they next wait for this rank.
  void Abort(const std::string& reason);
  void Close(const std::string& reason, Leaving how = kClosed);
  // As Abort(), with another error than ERROR_ABORTED.
  void EndAll(const Status& status) { End(status, false, status.message()); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool in_call() const { return busy_.load(); }
  // Whether this rank has left the group by Close().
  bool left() const;
  Status CheckUsable(const char* name) const;
  // The error that ended the group.
  Status Failure() const;
  // The error for a thread that makes a call while another thread is in one.
  Status SecondThread(const char* name) const;
  bool Inherited() const { return fork_generation_ != ForkGeneration(); }

  // For first contact of a subgroup: an error if the process of one of `ranks` has ended; with
  // `also_left`, also if one has left or the group has failed.
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) const;

 private:
  // Exists once first contact is complete.
  struct Connection {
    Connection(Group group, int rank, int rank_size, const WaitDuties* duties,
               uint64_t steps_before)
        : endpoint(std::move(group), rank, rank_size), step(&endpoint, duties, steps_before) {}
    Endpoint endpoint;
    Step step;
  };
  // The step of a failure outside a step: it ends all steps.
  static constexpr uint64_t kOutsideSteps = 0;

  Status Connect(const char* name, const Deadline& deadline);
  static Status Thrown(const char* name, const std::exception& error);
  Status CheckBoard() const;
  Status ParentFailure() const;
  void ConnectTo(Group group);
  void FailLocked(const Status& status, uint64_t step);
  std::string ActOfRank(const char* act, const std::string& reason) const;
  void PublishLeft(const std::string& reason);
  void End(const Status& status, bool leave, const std::string& reason);
  void EndLocked(const Status& status, bool leave, const std::string& reason);

  const GroupSpec spec_;
  std::atomic<double> timeout_s_{spec_.timeout_s};
  const uint64_t fork_generation_;
  const uint64_t steps_before_;
  WaitDuties duties_;
  std::unique_ptr<Meeting> meeting_;
  bool pending_ = false;  // one of the pending groups of this process, until MarkMet()
  std::unique_ptr<Connection> connection_;
  std::atomic<bool> busy_{false};
  std::atomic<bool> failed_{false};
  bool keeps_group_ = false;
  // The most: a backend without calls on streams, in whose calls every rank is missed.
  std::atomic<uint64_t> calls_on_streams_{std::numeric_limits<uint64_t>::max()};
  std::atomic<bool> streams_ended_{false};
  mutable std::mutex mutex_;  // guards what Abort() and Close() change from another thread
  Status failure_;
  bool left_ = false;
  Leaving leaves_ = kClosed;
};

}  // namespace collops::control
