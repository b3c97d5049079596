#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "comm/communicator_spec.h"
#include "comm/control/bootstrap/meeting.h"
#include "comm/control/endpoint.h"
#include "comm/control/step.h"
#include "comm/placement/job.h"
#include "core/deadline.h"
#include "core/fork_generation.h"

namespace collops::control {

// Who is there, and whether a call may go on: first contact, agreement on a call, refusal, failure,
// loss of a rank, leaving, one thread at a time. The same for all backends, which move bytes and
// ask it. One per communicator, which owns it. Not thread-safe, but for Abort(), Close() and
// failed(). Every wait ends at the time-out.
class Control {
 public:
  // For the ranks of spec's job, or of this process where they are threads.
  static Status Create(const CommunicatorSpec& spec, int64_t backend_bytes,
                       std::shared_ptr<Control>* control);
  // Begins first contact, which makes the memory that the ranks of this host share: the board, and
  // `backend_bytes` for the backend's own signals. `steps_before` is 0 but in tests, which begin as
  // if so many steps had been made.
  Control(const CommunicatorSpec& spec, const JobIdentity& job, int64_t backend_bytes,
          uint64_t steps_before = 0);
  // Of a group that has met: what Meeting::Complete() yields.
  Control(const CommunicatorSpec& spec, Group group);
  // Of a group whose ranks an engine has brought together, and nobody sees here: it has no board.
  explicit Control(const CommunicatorSpec& spec);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  const CommunicatorSpec& spec() const { return spec_; }
  // From any thread; for calls that begin later.
  double timeout_s() const { return timeout_s_.load(std::memory_order_relaxed); }
  void set_timeout_s(double timeout_s) { timeout_s_.store(timeout_s, std::memory_order_relaxed); }
  bool has_board() const { return meeting_ != nullptr || connection_ != nullptr; }

  // Runs `body` as this rank's only call: checks that it may, completes first contact, and ends the
  // group on an error, or an exception, that neither is a refusal nor was excused. All of its
  // waits, first contact's too, end at one deadline.
  template <typename Body>
  Status Run(const char* name, Body&& body);

  // What `body` returns, or what it throws, such as for want of memory.
  template <typename Body>
  static Status Catch(const char* name, Body&& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      return Thrown(name, error);
    }
  }
  // The same of what runs outside of Run(): what it throws ends the group.
  template <typename Body>
  Status CatchAndEnd(const char* name, Body&& body) {
    bool whole = false;
    const Status status = Catch(name, [&] {
      const Status returned = body();
      whole = true;
      return returned;
    });
    if (!whole) EndAll(status);
    return status;
  }

  // Runs `body`, which makes no call, while no call runs.
  template <typename Body>
  Status Alone(const char* name, Body&& body) {
    if (Inherited()) return CheckUsable();
    const Busy busy{&busy_};
    return busy.mine ? body() : SecondThread(name);
  }

  // What follows is for the body of a call.

  // The step that the next Begin() begins. Needs a board.
  Step& step() { return connection_->step; }
  uint64_t step_number() const { return connection_ == nullptr ? 0 : connection_->step.number(); }
  Endpoint& endpoint() { return connection_->endpoint; }
  std::byte* backend_memory();
  // Called by waits before every nap.
  void set_drain(std::function<void()> drain) { duties_.drain = std::move(drain); }

  void Drain() const {
    if (duties_.drain) duties_.drain();
  }
  // Asked by waits that have spun in vain: moves messages, and says whether any are under way.
  void set_pump(std::function<Pumped()> pump) { duties_.pump = std::move(pump); }
  // Asked by waits before every nap: 0, or the limit that the call which runs has outlived.
  void set_overdue(std::function<double()> overdue) { duties_.overdue = std::move(overdue); }

  // A step in which the ranks agree and nothing moves.
  Status Agree(const Agreement& agreement);
  // The same, and every rank gets `bytes` of each: all[r] = mine of rank r.
  Status Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all);
  // Takes part in the next step with a refusal: the others get the reason's message at once.
  Status Refuse(const char* name, const Status& reason);
  // An error of this call that concerns this rank alone: the group stays good. Returns it.
  Status Excuse(const Status& error) {
    excused_ = true;
    return error;
  }
  // Whether a rank has left or ended, or a call has failed, without waiting. Ok without a board.
  Status Peek(const char* name) const;

  // Ends the group with `status` from `step` on; calls before it are whole on all ranks.
  Status Fail(const Status& status, uint64_t step);

  // From any thread. Abort ends every rank's calls; Close leaves, and the others learn `reason`
  // when they next wait for this rank.
  void Abort(const std::string& reason);
  void Close(const std::string& reason);
  // The same as Abort(), with an error that says more.
  void EndAll(const Status& status) { End(status, false, status.message()); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  bool in_call() const { return busy_.load(); }
  Status CheckUsable() const;
  // What ended the group.
  Status Failure() const;
  // Of a thread that comes while another one is in a call.
  Status SecondThread(const char* name) const;
  bool Inherited() const { return fork_generation_ != ForkGeneration(); }

  // For first contact of a part: an error if one of these ranks cannot come to it any more; with
  // `also_left` also if one has left, or the group has failed.
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) const;

 private:
  // What exists once first contact is complete.
  struct Connection {
    Connection(Group group, int rank, int rank_size, const WaitDuties* duties,
               uint64_t steps_before)
        : endpoint(std::move(group), rank, rank_size), step(&endpoint, duties, steps_before) {}
    Endpoint endpoint;
    Step step;
  };
  // Of a failure: it ends all steps.
  static constexpr uint64_t kOutsideSteps = 0;

  // Marks this rank as in a call, unless it is in one already.
  struct Busy {
    std::atomic<bool>* flag;
    bool mine = !flag->exchange(true);
    ~Busy() {
      if (mine) flag->store(false, std::memory_order_release);
    }
  };

  Status Connect(const char* name, const Deadline& deadline);
  static Status Thrown(const char* name, const std::exception& error);
  Status CheckBoard() const;
  Status Finish(const Status& status, uint64_t step_before);
  Status FamilyFailure() const;
  void ConnectTo(Group group);
  void FailLocked(const Status& status, uint64_t step);
  void End(const Status& status, bool leave, const std::string& reason);

  const CommunicatorSpec spec_;
  std::atomic<double> timeout_s_{spec_.timeout_s};
  const uint64_t fork_generation_;
  const uint64_t steps_before_;
  WaitDuties duties_;
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<Connection> connection_;
  std::atomic<bool> busy_{false};
  std::atomic<bool> failed_{false};
  bool excused_ = false;
  mutable std::mutex mutex_;  // guards what Abort() and Close() from another thread may touch
  Status failure_;
  bool left_ = false;
};

template <typename Body>
Status Control::Run(const char* name, Body&& body) {
  // First: in a child of fork() a call of the parent's may seem to run for ever.
  if (Inherited()) return CheckUsable();
  const Busy busy{&busy_};
  if (!busy.mine) return SecondThread(name);
  if (failed()) return CheckUsable();
  std::optional<Deadline> deadline;
  if (connection_ == nullptr && has_board()) {
    deadline = Deadline::After(timeout_s());
    RETURN_IF_ERROR(Connect(name, *deadline));
  }
  excused_ = false;
  const uint64_t step_before = step_number();
  if (connection_ != nullptr) connection_->step.BeginCall(deadline);
  const Status status = Catch(name, body);
  return status.ok() ? Ok() : Finish(status, step_before);
}

}  // namespace collops::control
