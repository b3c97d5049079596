#include "comm/control/waiter.h"

#include <sched.h>

#include "comm/user_calls.h"
#include "core/interrupt.h"

namespace collops::control {
namespace {

constexpr double kIdleS = 0.001;

}  // namespace

bool Patience::Yield() {
  if (!idle_) idle_ = Deadline::After(kIdleS);
  if (idle_->Passed()) return false;
  sched_yield();
  return true;
}

Status Waiter::LookAround() const {
  CHECK_ARG(!Interrupted(), ERROR_ABORTED, name_, ": rank ", endpoint_->rank(), " was interrupted");
  if (duties_->drain) duties_->drain();
  const Status loss = endpoint_->FindLoss(step_);
  // A rank that ended the group (or the parent of this subgroup) and then left is reported with
  // that failure.
  if (!loss.ok()) RETURN_IF_ERROR(endpoint_->GroupFailure(step_));
  if (duties_->parent) RETURN_IF_ERROR(duties_->parent());
  CHECK_ARG(loss.ok(), loss.code(), name_, ": ", loss.message());
  const double outlived_s = duties_->Overdue();
  CHECK_ARG(outlived_s == 0, ERROR_TIMEOUT, name_, ": no end of call ", CallNumber(step_), " in ",
            outlived_s, " s: ", endpoint_->DescribeLate(step_));
  return Ok();
}

Status Waiter::Look() {
  if (!*deadline_) *deadline_ = Deadline::After(timeout_s_);
  RETURN_IF_ERROR(LookAround());
  CHECK_ARG(!(*deadline_)->Passed(), ERROR_TIMEOUT, name_, ": no end of call ", CallNumber(step_),
            " in ", (*deadline_)->timeout_s(), " s: ", endpoint_->DescribeLate(step_));
  return Ok();
}

}  // namespace collops::control
