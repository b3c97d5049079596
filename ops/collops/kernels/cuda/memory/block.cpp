#include "collops/kernels/cuda/memory/block.h"

#include <algorithm>

#include "collops/kernels/cuda/driver/device_scope.h"
#include "collops/kernels/cuda/driver/error.h"
#include "collops/kernels/cuda/driver/relaxed_captures.h"
#include "collops/kernels/cuda/driver/runtime.h"

namespace collops::cuda {

// The caller cannot act on an error of this call.
Block::~Block() {
  for (Event event : spare_) static_cast<void>(driver_.event_destroy(event));
}

// Lets go of the events that are reached.
Status Block::Reap() {
  Status status;
  const auto is_past = [&](const Use& use) {
    const Result result = driver_.event_query(use.event);
    if (result == Result::kSuccess) spare_.push_back(use.event);
    if (result != Result::kSuccess && result != Result::kNotReady) {
      status = ToStatus(driver_, result, "cuEventQuery");
    }
    return result == Result::kSuccess;
  };
  uses_.erase(std::remove_if(uses_.begin(), uses_.end(), is_past), uses_.end());
  return status;
}

// One event for each stream. A stream that has been destroyed may have left its handle to another
// one, which then follows it here.
Status Block::Record(Stream stream) {
  const auto found = std::find_if(uses_.begin(), uses_.end(),
                                  [&](const Use& use) { return use.stream == stream; });
  Use use = {stream, nullptr};
  if (found != uses_.end()) {
    use = *found;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver_, driver_.stream_wait_event(stream, use.event, 0), "cuStreamWaitEvent"));
  } else if (!spare_.empty()) {
    use.event = spare_.back();
    spare_.pop_back();
  } else {
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver_, driver_.event_create(&use.event, kEventDisableTiming), "cuEventCreate"));
  }
  if (found == uses_.end()) uses_.push_back(use);
  return ToStatus(driver_, driver_.event_record(use.event, stream), "cuEventRecord");
}

// The legacy stream cannot take an event while a stream that it waits for is captured.
Status Block::RecordOnLegacy() {
  CaptureStatus status = CaptureStatus::kNone;
  is_unrecorded_ =
      driver_.stream_is_capturing(LegacyStream(), &status) == Result::kStreamCaptureImplicit;
  return is_unrecorded_ ? Ok() : Record(LegacyStream());
}

// The legacy stream follows those that a thread has by default, whichever thread that was.
void Block::UsedOn(Stream stream) {
  if (OfParent()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const DeviceScope scope(driver_, device_);
  const RelaxedCaptures relaxed(driver_);
  Status status = scope.status();
  if (status.ok()) status = Reap();
  Graph graph = nullptr;
  if (status.ok() && (stream == LegacyStream() || stream == PerThreadStream())) {
    status = RecordOnLegacy();
  } else if (status.ok()) {
    Runtime runtime(driver_);
    status = runtime.FindGraph(stream, &graph);
    if (status.ok() && graph != nullptr) runtime.KeepWithGraph(graph, shared_from_this());
    if (status.ok() && graph == nullptr) status = Record(stream);
  }
  if (!status.ok()) is_lost_ = true;
}

Status Block::OrderBehindUses(Stream stream) {
  COLLOPS_CHECK_ARG(
      !OfParent(), ERROR_INVALID_TENSOR_ADDR,
      "this memory of a GPU was made before fork(), and the child has no access to it");
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_other = [&](const Use& use) { return use.stream != stream; };
  if (std::none_of(uses_.begin(), uses_.end(), is_other)) return Ok();
  const DeviceScope scope(driver_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  const RelaxedCaptures relaxed(driver_);
  COLLOPS_RETURN_IF_ERROR(Reap());
  if (std::none_of(uses_.begin(), uses_.end(), is_other)) return Ok();
  Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(Runtime(driver_).FindGraph(stream, &graph));
  COLLOPS_CHECK_ARG(graph == nullptr, ERROR_INVALID_STREAM,
                    "another stream still has work on this memory, and a graph cannot wait for it: "
                    "synchronise before the capture");
  for (const Use& use : uses_) {
    if (!is_other(use)) continue;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver_, driver_.stream_wait_event(stream, use.event, 0), "cuStreamWaitEvent"));
  }
  return Ok();
}

bool Block::IsPast() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_lost_ || (uses_.empty() && !is_unrecorded_)) return !is_lost_;
  const DeviceScope scope(driver_, device_);
  const RelaxedCaptures relaxed(driver_);
  if (!scope.status().ok() || !Reap().ok() || (is_unrecorded_ && !RecordOnLegacy().ok())) {
    is_lost_ = true;
  }
  return !is_lost_ && !is_unrecorded_ && uses_.empty();
}

}  // namespace collops::cuda
