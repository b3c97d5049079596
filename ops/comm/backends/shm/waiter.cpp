#include "comm/backends/shm/waiter.h"

#include <sched.h>

#include "comm/backends/shm/window_mail.h"
#include "core/interrupt.h"

namespace collops::shm {
namespace {

constexpr double kIdleS = 0.001;

}  // namespace

bool Waiter::Patience::Yield() {
  if (!idle_) idle_ = Deadline::After(kIdleS);
  if (idle_->Passed()) return false;
  sched_yield();
  return true;
}

Status Waiter::Look() {
  if (!deadline_) deadline_ = Deadline::After(timeout_s_);
  CHECK_ARG(!Interrupted(), ERROR_ABORTED, name_, ": rank ", endpoint_->rank(), " was interrupted");
  mail_->Drain();
  const Status loss = endpoint_->FindLoss(sequence_);
  // Who ended the group and then left is known by what ended it.
  if (!loss.ok()) RETURN_IF_ERROR(endpoint_->GroupFailure(sequence_));
  CHECK_ARG(loss.ok(), loss.code(), name_, ": ", loss.message());
  CHECK_ARG(!deadline_->Passed(), ERROR_TIMEOUT, name_, ": no end of call ", sequence_, " in ",
            timeout_s_, " s: ", endpoint_->DescribeLate(sequence_));
  return Ok();
}

}  // namespace collops::shm
