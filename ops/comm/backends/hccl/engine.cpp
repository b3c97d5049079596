#include "comm/backends/hccl/engine.h"

#include <chrono>
#include <thread>

#include "comm/backends/hccl/error.h"
#include "core/deadline.h"

namespace collops::hccl {
namespace {

// A call that its peers have left never ends; a program that ends well has waited for its own.
constexpr double kEndS = 2.0;

}  // namespace

Status Engine::Initialise(int rank, int rank_size, const RootInfo& root_info) {
  Comm made = nullptr;
  const Result result = api_.comm_init_root_info(static_cast<uint32_t>(rank_size), &root_info,
                                                 static_cast<uint32_t>(rank), &made);
  RETURN_IF_ERROR(ToStatus(api_, result, "HcclCommInitRootInfo"));
  comm_ = made;
  owned_ = true;
  return Ok();
}

Status Engine::CheckHealth() const {
  Result error = Result::kSuccess;
  RETURN_IF_ERROR(
      ToStatus(api_, api_.get_comm_async_error(comm_, &error), "HcclGetCommAsyncError"));
  const Status status = ToStatus(api_, error, "HcclGetCommAsyncError");
  CHECK_ARG(status.ok(), status.code(), "an earlier call failed: ", status.message());
  return Ok();
}

Status Engine::MarkEnd(Stream stream) {
  if (!owned_) return Ok();
  if (end_ == nullptr) {
    RETURN_IF_ERROR(ToStatus(api_, api_.create_event(&end_), "aclrtCreateEvent"));
  }
  return ToStatus(api_, api_.record_event(end_, stream), "aclrtRecordEvent");
}

// A runtime that is shut down answers with an error: nothing runs any more.
bool Engine::WaitForEnd() const {
  const Deadline deadline = Deadline::After(kEndS);
  EventStatus status = EventStatus::kNotReady;
  while (end_ != nullptr && api_.query_event_status(end_, &status) == 0 &&
         status != EventStatus::kComplete) {
    if (deadline.Passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void Engine::Release() {
  if (owned_ && WaitForEnd()) {
    // Nobody is left who could act on an error here.
    if (end_ != nullptr) static_cast<void>(api_.destroy_event(end_));
    static_cast<void>(api_.comm_destroy(comm_));
  }
  end_ = nullptr;
  comm_ = nullptr;
  owned_ = false;
}

}  // namespace collops::hccl
