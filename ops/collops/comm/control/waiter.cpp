#include "collops/comm/control/waiter.h"

#include <sched.h>

#include "collops/comm/user_calls.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/trace/log.h"

namespace collops::control {
namespace {

constexpr double kSilentS = 10.0;
constexpr auto kIdle = std::chrono::milliseconds(1);
// A yield that finds no other thread takes less, its look included.
constexpr auto kAlone = std::chrono::microseconds(2);

}  // namespace

bool Backoff::Yield() {
  if (begun_ == Clock::time_point()) begun_ = looked_ = Clock::now();
  if (looked_ - begun_ >= kIdle) return false;
  const Clock::time_point before = looked_;
  sched_yield();
  looked_ = Clock::now();
  spins_->NoteYield(looked_ - before > kAlone);
  return true;
}

Status Waiter::LookAround() const {
  COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, name_, ": rank ", endpoint_->rank(),
                    " was interrupted");
  if (duties_->drain) duties_->drain();
  const Status loss = endpoint_->FindLoss(step_);
  // A rank that ended the group (or the parent of this subgroup) and then left is reported with
  // that failure.
  if (!loss.ok()) COLLOPS_RETURN_IF_ERROR(endpoint_->GroupFailure(step_));
  if (duties_->parent) COLLOPS_RETURN_IF_ERROR(duties_->parent());
  COLLOPS_CHECK_ARG(loss.ok(), loss.code(), CallText(name_, step_), " failed: ", loss.message());
  const double outlived_s = duties_->Overdue();
  COLLOPS_CHECK_ARG(outlived_s == 0, ERROR_TIMEOUT, CallText(name_, step_), " timed out after ",
                    outlived_s, " s: ", endpoint_->DescribeLate(step_));
  return Ok();
}

Status Waiter::Look() {
  if (!*deadline_) *deadline_ = Deadline::After(timeout_s_);
  COLLOPS_RETURN_IF_ERROR(LookAround());
  COLLOPS_CHECK_ARG(!(*deadline_)->Passed(), ERROR_TIMEOUT, CallText(name_, step_),
                    " timed out after ", (*deadline_)->timeout_s(),
                    " s: ", endpoint_->DescribeLate(step_));
  TellWaiting();
  return Ok();
}

void Waiter::TellWaiting() {
  if (waiting_printed_) return;
  if (!silence_) silence_ = Deadline::After(kSilentS);
  if (!silence_->Passed()) return;
  waiting_printed_ = true;
  Log(LogLevel::kWarning, Concat("collops: rank ", endpoint_->rank(), ": ", CallText(name_, step_),
                                 ": waiting for ", endpoint_->DescribeLate(step_)));
}

}  // namespace collops::control
