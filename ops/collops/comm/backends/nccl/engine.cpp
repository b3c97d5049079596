#include "collops/comm/backends/nccl/engine.h"

#include <utility>

#include "collops/comm/backends/nccl/library/error.h"
#include "collops/core/process/interrupt.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/memory_pool.h"

namespace collops::nccl {
namespace {

// How long an ncclComm_t of ours waits for its calls before it is ended.
constexpr double kEndS = 2.0;
constexpr int64_t kStandInBytes = 256;

}  // namespace

Engine::Engine(const Api& api, const cuda::DriverApi& driver, const CommunicatorSpec& spec,
               Comm caller_comm)
    : StreamEngine(&runtime_),
      api_(api),
      driver_(driver),
      rank_(spec.rank),
      size_(spec.rank_size),
      timeout_s_(spec.timeout_s),
      runtime_(driver),
      kernels_(driver) {
  if (caller_comm != nullptr) caller_comm_ = CommHandle::OfCaller(api, caller_comm);
}

MayWait Engine::UntilTimeout() const {
  const double limit_s = control_ == nullptr ? timeout_s_ : control_->timeout_s();
  return [this, limit_s, deadline = Deadline::After(limit_s)](const char* call) -> Status {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, call, ": rank ", rank_, " was interrupted");
    if (control_ != nullptr) COLLOPS_RETURN_IF_ERROR(control_->Peek(call));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, call, ": NCCL did not finish within ",
                      limit_s, " s: a rank has not made this call");
    return Ok();
  };
}

// The watcher's abort ends a call that waits inside NCCL, and the group's error says why.
Status Engine::Taken(Result result, const char* call) const {
  if (result == Result::kSuccess) return Ok();
  const Status status = handle_->Settle(result, call, UntilTimeout());
  const bool was_ended = !status.ok() && control_ != nullptr && control_->failed();
  return was_ended ? control_->Failure() : status;
}

// For a thread of this process that may outlast the engine.
OnGpu Engine::InThread(int device) const {
  return [&driver = driver_, device](const std::function<void()>& step) {
    const cuda::RelaxedCaptures relaxed(driver);
    const cuda::DeviceScope scope(driver, device);
    if (scope.status().ok()) step();
    return scope.status();
  };
}

Status Engine::Connect(int device, std::shared_ptr<CommHandle> handle) {
  COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  const auto before = [this] {
    return cuda::RunningCalls::Await(
        driver_, [may_wait = UntilTimeout()] { return may_wait(kFirstContact); });
  };
  COLLOPS_RETURN_IF_ERROR(cuda::Pool::Take(driver_, device, kStandInBytes, before, &stand_in_));
  {
    const std::lock_guard<std::mutex> lock(letting_go_);
    handle_ = std::move(handle);
  }
  is_connected_ = true;
  return Ok();
}

// A caller's ncclComm_t has a GPU, whichever this thread has chosen. A thread that has chosen none
// works on device 0 in CUDA's runtime, and so in torch.
Status Engine::FindDevice(int* device) const {
  if (caller_comm_ != nullptr) {
    return ToStatus(api_, api_.comm_cu_device(caller_comm_->comm(), device), "ncclCommCuDevice");
  }
  return cuda::CurrentDevice(driver_, device);
}

Status Engine::OnDevice(int device, const std::function<void()>& step) const {
  const cuda::DeviceScope scope(driver_, device);
  if (scope.status().ok()) step();
  return scope.status();
}

Status Engine::AsyncError() {
  Result error = Result::kSuccess;
  COLLOPS_RETURN_IF_ERROR(handle_->FindResult(&error));
  return ToStatus(api_, error, "NCCL");
}

// A caller's ncclComm_t is the caller's to abort.
void Engine::AbortCalls() {
  std::shared_ptr<CommHandle> handle;
  {
    const std::lock_guard<std::mutex> lock(letting_go_);
    handle = handle_;
  }
  if (handle != nullptr) static_cast<void>(handle->BeginAbort());
}

// A thread's mode for what would be refused while any thread captures.
void Engine::AllowCaptures() const {
  cuda::CaptureMode mode = cuda::CaptureMode::kRelaxed;
  // The caller cannot act on an error of this call.
  static_cast<void>(driver_.exchange_capture_mode(&mode));
}

double Engine::Patience() const {
  return handle_ != nullptr && handle_->owned() ? kEndS : 0.0;
}

// What was not destroyed is aborted with its last user, which ends the calls that still run.
void Engine::LetGo(bool past) {
  if (past && handle_ != nullptr) handle_->End();
  stand_in_.reset();
  is_connected_ = false;
  const std::lock_guard<std::mutex> lock(letting_go_);
  handle_.reset();
}

}  // namespace collops::nccl
