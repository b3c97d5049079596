#include "collops/comm/control/bootstrap/meeting.h"

#include "collops/core/process/interrupt.h"
#include "collops/core/trace/log.h"

namespace collops::control {
namespace {

constexpr double kSilentS = 10.0;

}  // namespace

Status Meeting::CheckWanted() const {
  COLLOPS_CHECK_ARG(!stopped_.load(std::memory_order_acquire), ERROR_ABORTED,
                    "first contact was stopped");
  COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
  return Ok();
}

void Meeting::TellWaiting(const std::string& line) {
  if (!silence_) silence_ = Deadline::After(kSilentS);
  if (told_waiting_ || !silence_->Passed()) return;
  told_waiting_ = true;
  Log(LogLevel::kWarning, line);
}

}  // namespace collops::control
