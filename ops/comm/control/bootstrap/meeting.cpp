#include "comm/control/bootstrap/meeting.h"

#include "core/interrupt.h"

namespace collops::control {

Status Meeting::CheckWanted() const {
  CHECK_ARG(!stopped_.load(std::memory_order_acquire), ERROR_ABORTED, "first contact was stopped");
  CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
  return Ok();
}

}  // namespace collops::control
