#include "collops/comm/backends/hccl/engine.h"

#include <utility>

#include "collops/comm/backends/hccl/library/device_scope.h"
#include "collops/comm/backends/hccl/library/error.h"

namespace collops::hccl {
namespace {

// How long an HcclComm of ours waits for its calls before it is destroyed.
constexpr double kEndS = 2.0;
constexpr size_t kStandInBytes = 512;

}  // namespace

Engine::Engine(const Api& api, int rank, int size, Comm caller_comm)
    : StreamEngine(&runtime_), api_(api), rank_(rank), size_(size), runtime_(api) {
  if (caller_comm != nullptr) caller_comm_ = CommHandle::OfCaller(api, size, caller_comm);
}

Status Engine::Connect(std::shared_ptr<CommHandle> handle, Abilities abilities) {
  if (stand_in_ == nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        api_, api_.malloc(&stand_in_, kStandInBytes, AllocationPolicy::kHugeFirst), "aclrtMalloc"));
  }
  WarnOfReplacement(abilities);
  abilities_ = std::move(abilities);
  handle_ = std::move(handle);
  return Ok();
}

Status Engine::FindDevice(int* device) const {
  int32_t found = -1;
  const Status status = ToStatus(api_, api_.get_device(&found), "aclrtGetDevice");
  COLLOPS_CHECK_ARG(status.ok(), ERROR_INVALID_PARAM, "no NPU is chosen in this thread: call ",
                    "torch.npu.set_device(n), or aclrtSetDevice, first (", status.message(), ")");
  *device = found;
  return Ok();
}

Status Engine::OnDevice(int device, const std::function<void()>& step) const {
  const DeviceScope scope(api_, device);
  if (scope.status().ok()) step();
  return scope.status();
}

Status Engine::AsyncError() {
  Result error = Result::kSuccess;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api_, api_.get_comm_async_error(comm(), &error), "HcclGetCommAsyncError"));
  return ToStatus(api_, error, "HcclGetCommAsyncError");
}

double Engine::Patience() const {
  return handle_ != nullptr && handle_->owned() ? kEndS : 0.0;
}

void Engine::LetGo(bool past) {
  if (!past && handle_ != nullptr) handle_->Keep();
  // The caller cannot act on an error of this call.
  if (past && stand_in_ != nullptr) static_cast<void>(api_.free(stand_in_));
  stand_in_ = nullptr;
  handle_.reset();
}

}  // namespace collops::hccl
