#include "collops/comm/call_scope.h"

#include <string>
#include <utility>

#include "collops/core/trace/log.h"
#include "collops/core/trace/recording.h"

namespace collops {

Status CallScope::TakeTurn(CallQueue* queue, bool* bypasses) {
  const control::Control& control = group_.control();
  const bool here = queue->RunsHere();
  if (kind_ == Kind::kMessages && group_.connected_.load(std::memory_order_acquire)) {
    *bypasses = true;
    COLLOPS_RETURN_IF_ERROR(control.CheckUsable(name_));
    if (here) return Ok();
    caller_.emplace(queue);
    return caller_->alone() ? Ok() : control.SecondThread(name_);
  }
  if (here) return Ok();
  if (control.Inherited()) return control.CheckUsable(name_);
  turn_.emplace(queue, name_);
  return turn_->status();
}

Status CallScope::Connect() {
  return call_.End(control::Control::Catch(name_, [&] { return group_.FinishConnecting(); }));
}

Status CallScope::Judge(Status status, bool thrown) {
  const bool of_messages = kind_ == Kind::kMessages && !thrown;
  if (call_.runs() && !of_messages) return call_.End(std::move(status));
  if (thrown) group_.control().EndAll(status);
  return status;
}

void CallScope::BeginTrace() {
  if (!traced()) return;
  is_traced_ = true;
  line_ = group_.traced_ ? ++group_.num_calls_ : 0;
  user_call_ = UserCall::Number();
  const recording::Lane& lane = group_.lane();
  begin_ns_ = recording::Now();
  if (!recording::On()) return;
  span_.emplace(lane, name_);
  std::string& args = span_->args;
  args = Concat("\"backend\":\"", lane.backend, "\",\"rank\":", lane.rank,
                ",\"ranks\":", lane.rank_size);
  if (number_ > 0) args += Concat(",\"seq\":", number_);
  if (user_call_ > 0) args += Concat(",\"call\":", user_call_);
  if (dtype_ == DType::kUndefined) return;
  args += Concat(",\"sent_bytes\":", sent_ * SizeOf(dtype_),
                 ",\"received_bytes\":", received_ * SizeOf(dtype_), ",\"dtype\":\"", Name(dtype_),
                 "\"");
}

void CallScope::EndTrace(const Status& status) {
  if (span_) {
    if (!status.ok()) span_->args += Concat(",\"error\":\"", ErrorName(status.code()), "\"");
    span_.reset();
    if (!status.ok()) recording::Flush();
  }
  if (line_ == 0) return;
  const recording::Lane& lane = group_.lane();
  const double took_ms = static_cast<double>(recording::Now() - begin_ns_) * 1e-6;
  const uint64_t number = user_call_ > 0 ? user_call_ : number_;
  const std::string numbered = number > 0 ? Concat(" call=", number) : "";
  const std::string sizes = dtype_ == DType::kUndefined
                                ? ""
                                : Concat(" send=", sent_, " ", Name(dtype_), " recv=", received_);
  Log(LogLevel::kInfo, Concat("r", lane.rank, "/", lane.rank_size, " ",
                              lane.comm_domain.empty() ? "-" : lane.comm_domain, " ", lane.backend,
                              " ", name_, numbered, sizes, " ", took_ms, " ms",
                              status.ok() ? "" : Concat(" ", ErrorName(status.code()))));
}

}  // namespace collops
