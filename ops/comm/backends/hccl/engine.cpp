#include "comm/backends/hccl/engine.h"

#include <utility>

#include "comm/backends/hccl/library/device_scope.h"
#include "comm/backends/hccl/library/error.h"
#include "core/deadline.h"

namespace collops::hccl {
namespace {

// How long Release() waits before an HcclComm is destroyed: a call that its peers have left never
// ends.
constexpr double kEndS = 2.0;
constexpr size_t kStandInBytes = 512;

// What a call keeps alive, and its name for errors that are found later.
struct CallOnStream {
  KeepAlive kept;
  const char* name;
  uint64_t number;
};

}  // namespace

Status Engine::Connect(std::shared_ptr<CommHandle> handle, Abilities abilities) {
  if (stand_in_ == nullptr) {
    RETURN_IF_ERROR(ToStatus(
        api_, api_.malloc(&stand_in_, kStandInBytes, AllocationPolicy::kHugeFirst), "aclrtMalloc"));
  }
  WarnOfReplacement(abilities);
  abilities_ = std::move(abilities);
  handle_ = std::move(handle);
  return Ok();
}

// Streams run their calls in order, so the first call that has not ended is the one that failed, or
// waits behind it.
Status Engine::CheckHealth() {
  Result error = Result::kSuccess;
  RETURN_IF_ERROR(
      ToStatus(api_, api_.get_comm_async_error(comm(), &error), "HcclGetCommAsyncError"));
  const Status status = ToStatus(api_, error, "HcclGetCommAsyncError");
  if (status.ok()) return Ok();
  static_cast<void>(in_flight_.Reap());
  std::string calls;
  for (const auto& kept : in_flight_.OldestAhead()) {
    const auto& call = *static_cast<const CallOnStream*>(kept.get());
    calls += Concat(calls.empty() ? "" : " or ", call.name);
    if (call.number > 0) calls += Concat(" (call ", call.number, ")");
  }
  return Error(status.code(), "an earlier call failed", calls.empty() ? "" : ", ", calls, ": ",
               status.message());
}

Status Engine::Keep(Stream stream, KeepAlive kept, const char* name, uint64_t number) {
  return in_flight_.Keep(
      stream, std::make_shared<CallOnStream>(CallOnStream{std::move(kept), name, number}));
}

bool Engine::IsIdle(int device) {
  if (in_flight_.empty()) return true;
  const DeviceScope scope(api_, device);
  return !scope.status().ok() || in_flight_.Reap() != DeviceRuntime::Progress::kAhead;
}

bool Engine::Release(int device) {
  bool past = true;
  if (handle_ != nullptr || !in_flight_.empty()) {
    const DeviceScope scope(api_, device);
    const double limit_s = handle_ != nullptr && handle_->owned() ? kEndS : 0.0;
    past = scope.status().ok() && in_flight_.Drain(Deadline::After(limit_s)).ok();
    if (!past && handle_ != nullptr) handle_->Keep();
    // The caller cannot act on an error of this call.
    if (past && stand_in_ != nullptr) static_cast<void>(api_.free(stand_in_));
  }
  stand_in_ = nullptr;
  handle_.reset();
  return past;
}

}  // namespace collops::hccl
