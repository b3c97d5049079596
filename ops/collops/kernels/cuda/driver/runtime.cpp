#include "collops/kernels/cuda/driver/runtime.h"

#include <utility>

#include "collops/kernels/cuda/driver/error.h"
#include "collops/kernels/cuda/driver/relaxed_captures.h"

namespace collops::cuda {
namespace {

using Kept = std::shared_ptr<const void>;

// Called by the driver when the last graph is gone, in a thread in which nothing of CUDA may be
// called.
void LetGo(void* kept) {
  delete static_cast<Kept*>(kept);
}

}  // namespace

Status Runtime::CreateEvent(Event* event) {
  return ToStatus(api_, api_.event_create(event, kEventDisableTiming), "cuEventCreate");
}

Status Runtime::RecordEvent(Event event, Stream stream) {
  return ToStatus(api_, api_.event_record(event, stream), "cuEventRecord");
}

// In a mode in which the question does not end the capture of another thread, as it would while one
// is captured in the global mode.
kernels::DeviceRuntime::Progress Runtime::QueryEvent(Event event) {
  const RelaxedCaptures relaxed(api_);
  const Result result = api_.event_query(event);
  if (result == Result::kSuccess) return Progress::kReached;
  return result == Result::kNotReady ? Progress::kAhead : Progress::kUnknown;
}

// The caller cannot act on an error of this call.
void Runtime::DestroyEvent(Event event) {
  static_cast<void>(api_.event_destroy(event));
}

// The legacy stream cannot be captured: asking for it while another stream is being captured in
// the global mode is an error, kStreamCaptureImplicit, and the capture ends with one.
Status Runtime::FindCapture(Stream stream, uint64_t* number, Graph* graph) {
  *number = 0;
  *graph = nullptr;
  CaptureStatus status = CaptureStatus::kNone;
  uint64_t id = 0;
  Graph found = nullptr;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api_, api_.stream_get_capture_info(stream, &status, &id, &found, nullptr, nullptr),
               "cuStreamGetCaptureInfo"));
  COLLOPS_CHECK_ARG(status != CaptureStatus::kInvalidated, ERROR_RT_FAIL,
                    "the capture of the stream has failed: an earlier call in it was not allowed");
  if (status != CaptureStatus::kActive) return Ok();
  *number = id;
  *graph = found;
  return Ok();
}

Status Runtime::FindGraph(Stream stream, Graph* graph) {
  uint64_t number = 0;
  return FindCapture(stream, &number, graph);
}

// What the driver does not take is kept until the process ends.
void Runtime::KeepWithGraph(Graph graph, Kept kept) {
  auto* const held = new Kept(std::move(kept));
  UserObject object = nullptr;
  if (api_.user_object_create(&object, held, LetGo, 1, kUserObjectNoDestructorSync) !=
      Result::kSuccess) {
    return;
  }
  // Hands this function's reference to the graph; an error leaves it here.
  static_cast<void>(api_.graph_retain_user_object(graph, object, 1, kGraphUserObjectMove));
}

}  // namespace collops::cuda
