#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/call_queue.h"
#include "collops/comm/control/control.h"
#include "collops/core/dtype.h"
#include "collops/core/trace/spans.h"

namespace collops {

// One call of a communicator from its entry to its end: its number, its line in a trace, its turn
// after the started calls, whether it may begin, and what its end means for the group. On the stack
// of the thread that makes the call.
class CallScope {
 public:
  enum class Kind {
    kGroup,     // all ranks make it: it has a number, equal on all ranks
    kOnStream,  // messages that are put on a stream
    kMessages,  // other messages: once a call was started, they do not wait for the queue
    kUntraced,  // neither a number nor a trace
    kRefused,   // a group's call that this rank refuses: only a number
  };

  CallScope(BackendCommunicator* group, const char* name, Kind kind = Kind::kGroup)
      : group_(*group), name_(name), kind_(kind), call_(&group->control()) {
    if (kind == Kind::kGroup || kind == Kind::kRefused) CountGroupCall();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  // Elements that the call sends and receives, for the trace.
  bool traced() const {
    const bool shown = kind_ != Kind::kUntraced && kind_ != Kind::kRefused;
    return shown && (group_.traced_ || recording::On());
  }
  void SetMoved(int64_t sent, DType dtype, int64_t received) {
    sent_ = sent;
    dtype_ = dtype;
    received_ = received;
  }

  // Runs `body` when its turn has come, if it may begin; an exception becomes a Status. An error
  // that is neither a refusal nor excused ends the group; of messages, only an exception does.
  template <typename Body>
  Status Run(Body&& body) {
    Status status = Begin();
    if (status.ok()) {
      bool thrown = false;
      status = control::Control::Catch(name_, body, &thrown);
      if (!status.ok()) status = Judge(std::move(status), thrown);
    }
    return End(std::move(status));
  }

  // Inside of Run(), of an untraced call: it is one of the group from here on.
  void BecomeGroupCall() {
    kind_ = Kind::kGroup;
    CountGroupCall();
    BeginTrace();
  }

 private:
  // Not one atomic step, which takes longer: a second thread gets an error instead of a number.
  void CountGroupCall() {
    number_ = group_.group_calls_.load(std::memory_order_relaxed) + 1;
    group_.group_calls_.store(number_, std::memory_order_relaxed);
  }
  Status Begin() {
    if (traced()) BeginTrace();
    CallQueue* const queue = group_.queue_.load(std::memory_order_acquire);
    if (queue != nullptr) {
      bool bypasses = false;
      Status turn = TakeTurn(queue, &bypasses);
      if (!turn.ok() || bypasses) return turn;
    }
    COLLOPS_RETURN_IF_ERROR(call_.Begin(name_));
    return group_.connected_.load(std::memory_order_relaxed) ? Ok() : Connect();
  }
  // Where calls were started: waits for its turn. `bypasses`: of messages, which need none.
  Status TakeTurn(CallQueue* queue, bool* bypasses);
  Status Connect();
  // What an error, or an exception, of the body means for the group.
  Status Judge(Status status, bool thrown);
  Status End(Status status) {
    call_.Release();
    caller_.reset();
    turn_.reset();
    if (is_traced_) EndTrace(status);
    return status;
  }
  void BeginTrace();
  void EndTrace(const Status& status);

  BackendCommunicator& group_;
  const char* const name_;
  Kind kind_;
  uint64_t number_ = 0;  // among the group's calls; 0: not all ranks make it
  std::optional<CallQueue::Turn> turn_;
  std::optional<CallQueue::Caller> caller_;
  control::Control::Call call_;
  // For the trace.
  bool is_traced_ = false;
  uint64_t line_ = 0;  // among the calls with lines; 0: it gets none
  uint64_t user_call_ = 0;
  int64_t sent_ = 0;
  int64_t received_ = 0;
  DType dtype_ = DType::kUndefined;  // kUndefined: it moves none
  int64_t begin_ns_ = 0;
  std::optional<recording::CallSpan> span_;
};

}  // namespace collops
