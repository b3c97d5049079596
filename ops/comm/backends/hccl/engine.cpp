#include "comm/backends/hccl/engine.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/backends/hccl/device_scope.h"
#include "comm/backends/hccl/error.h"
#include "core/deadline.h"

namespace collops::hccl {
namespace {

// A call that its peers have left never ends; a program that ends well has waited for its own.
constexpr double kEndS = 2.0;

enum class End { kReached, kAhead, kUnknown };

// Whether a stream has come to a mark. What the runtime answers with an error, nobody knows.
End Ask(const Api& api, Event event) {
  EventStatus status = EventStatus::kNotReady;
  if (api.query_event_status(event, &status) != 0) return End::kUnknown;
  return status == EventStatus::kComplete ? End::kReached : End::kAhead;
}

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

// The stream's own event, or one whose stream has come to it, or a new one: as many as there are
// streams with work.
Status Engine::FindEvent(Stream stream, Event* event) {
  auto mark = std::find_if(marks_.begin(), marks_.end(),
                           [&](const Mark& known) { return known.stream == stream; });
  if (mark == marks_.end()) {
    mark = std::find_if(marks_.begin(), marks_.end(),
                        [&](const Mark& known) { return Ask(api_, known.event) == End::kReached; });
  }
  if (mark == marks_.end()) {
    Event made = nullptr;
    RETURN_IF_ERROR(ToStatus(api_, api_.create_event(&made), "aclrtCreateEvent"));
    mark = marks_.insert(marks_.end(), {stream, made});
  }
  mark->stream = stream;
  *event = mark->event;
  return Ok();
}

Status Engine::MarkEnd(Stream stream) {
  if (!owned_) return Ok();
  Event event = nullptr;
  Status status = FindEvent(stream, &event);
  if (status.ok()) status = ToStatus(api_, api_.record_event(event, stream), "aclrtRecordEvent");
  unmarked_ = unmarked_ || !status.ok();
  return status;
}

bool Engine::WaitForEnd() const {
  const Deadline deadline = Deadline::After(kEndS);
  for (const Mark& mark : marks_) {
    for (End end = Ask(api_, mark.event); end != End::kReached; end = Ask(api_, mark.event)) {
      if (end == End::kUnknown || deadline.Passed()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return !unmarked_;
}

// Nobody is left who could act on an error here.
void Engine::Destroy() const {
  for (const Mark& mark : marks_) static_cast<void>(api_.destroy_event(mark.event));
  static_cast<void>(api_.comm_destroy(comm_));
}

void Engine::Release(int device) {
  if (owned_) {
    const DeviceScope scope(api_, device);
    if (scope.status().ok() && WaitForEnd()) Destroy();
  }
  marks_.clear();
  comm_ = nullptr;
  owned_ = false;
}

}  // namespace collops::hccl
