#include "comm/backends/hccl/engine.h"

#include <utility>

#include "comm/backends/hccl/device_scope.h"
#include "comm/backends/hccl/error.h"
#include "core/deadline.h"

namespace collops::hccl {
namespace {

// How long Release() waits: a call that its peers have left never ends.
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

// The caller's HcclComm outlives its calls, so only what they read must be kept alive.
Status Engine::Keep(Stream stream, KeepAlive kept) {
  if (!owned_ && kept == nullptr) return Ok();
  return in_flight_.Keep(stream, std::move(kept));
}

bool Engine::IsIdle(int device) {
  if (in_flight_.empty()) return true;
  const DeviceScope scope(api_, device);
  return !scope.status().ok() || in_flight_.Reap() != DeviceRuntime::Progress::kAhead;
}

void Engine::Release(int device) {
  if (owned_ || !in_flight_.empty()) {
    const DeviceScope scope(api_, device);
    const double limit_s = owned_ ? kEndS : 0.0;
    const bool past = scope.status().ok() && in_flight_.Drain(Deadline::After(limit_s)).ok();
    // The caller cannot act on an error of this call.
    if (owned_ && past) static_cast<void>(api_.comm_destroy(comm_));
  }
  comm_ = nullptr;
  owned_ = false;
}

}  // namespace collops::hccl
