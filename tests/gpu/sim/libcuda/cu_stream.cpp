// Streams of a simulated libcuda, from its published signatures.
#include <algorithm>
#include <vector>

#include "collops/kernels/cuda/driver.h"
#include "driver/capture.h"
#include "driver/context.h"
#include "driver/stream.h"

using namespace collops_sim;
using collops::cuda::CaptureMode;
using collops::cuda::CaptureStatus;
using collops::cuda::GraphNode;

namespace {

constexpr unsigned kCall = kNeedsInit | kNeedsContext;
// A lower number is a greater priority. No stream goes first here.
constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

Result Create(void** handle, unsigned int flags, int priority) {
  if (flags > collops::cuda::kStreamNonBlocking) return kInvalidValue;
  const bool blocks = flags != collops::cuda::kStreamNonBlocking;
  Stream* const stream = CreateStream(
      CurrentContext(), blocks ? Stream::Order::kBlocking : Stream::Order::kNonBlocking);
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  *handle = stream;
  return Result::kSuccess;
}

// A stream that the host asks about: not a captured one.
Result FindAsked(const char* function, void* handle, Stream** stream) {
  Result result = Enter(function, kCall);
  if (result == Result::kSuccess) result = FindStream(handle, stream);
  if (result != Result::kSuccess) return result;
  return (*stream)->IsCapturing() ? RefuseInCapture(*stream, function) : result;
}

CaptureStatus StatusOf(const Stream* stream) {
  if (stream->capture == nullptr) return CaptureStatus::kNone;
  const bool is_valid = stream->capture->invalid == kFine;
  return is_valid ? CaptureStatus::kActive : CaptureStatus::kInvalidated;
}

}  // namespace

extern "C" {

Result cuStreamCreate(void** stream, unsigned int flags) {
  const Result result = Enter("cuStreamCreate", kCall);
  return result == Result::kSuccess ? Create(stream, flags, kLeastPriority) : result;
}
Result cuStreamCreateWithPriority(void** stream, unsigned int flags, int priority) {
  const Result result = Enter("cuStreamCreateWithPriority", kCall);
  return result == Result::kSuccess ? Create(stream, flags, priority) : result;
}
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  const Result result = Enter("cuCtxGetStreamPriorityRange", kCall);
  if (result != Result::kSuccess) return result;
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return result;
}
Result cuStreamDestroy_v2(void* handle) {
  const Result result = Enter("cuStreamDestroy_v2", kCall);
  if (result != Result::kSuccess) return result;
  if (DestroyStream(handle)) return result;
  return Refuse(kInvalidHandle, "there is no such stream");
}
Result cuStreamSynchronize(void* handle) {
  Stream* stream = nullptr;
  const Result result = FindAsked("cuStreamSynchronize", handle, &stream);
  return result == Result::kSuccess ? Synchronize(stream) : result;
}
Result cuStreamQuery(void* handle) {
  Stream* stream = nullptr;
  const Result result = FindAsked("cuStreamQuery", handle, &stream);
  return result != Result::kSuccess || stream->Idle() ? result : Result::kNotReady;
}
Result cuCtxSynchronize() {
  Result result = Enter("cuCtxSynchronize", kCall | kMayWait);
  if (result != Result::kSuccess) return result;
  for (Stream* stream : StreamsOf(CurrentContext())) {
    if (stream->IsCapturing()) return RefuseInCapture(stream, "cuCtxSynchronize");
    result = Synchronize(stream);
    if (result != Result::kSuccess) return result;
  }
  return result;
}
Result cuStreamIsCapturing(void* handle, CaptureStatus* status) {
  Stream* stream = nullptr;
  Result result = Enter("cuStreamIsCapturing", kNeedsInit);
  if (result == Result::kSuccess) result = FindStream(handle, &stream);
  if (result != Result::kSuccess) return result;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  *status = StatusOf(stream);
  return AskLegacy(stream);
}
Result cuStreamGetCaptureInfo_v2(void* handle, CaptureStatus* status, uint64_t* id, void** graph,
                                 const GraphNode** nodes, size_t* num_nodes) {
  Stream* stream = nullptr;
  Result result = Enter("cuStreamGetCaptureInfo_v2", kNeedsInit);
  if (result == Result::kSuccess) result = FindStream(handle, &stream);
  if (result != Result::kSuccess) return result;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  *status = StatusOf(stream);
  if (nodes != nullptr) *nodes = nullptr;
  if (num_nodes != nullptr) *num_nodes = 0;
  if (*status != CaptureStatus::kActive) return result;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph;
  return result;
}
Result cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  const Result result = Enter("cuThreadExchangeStreamCaptureMode", kNeedsInit);
  if (result == Result::kSuccess) *mode = ExchangeMode(*mode);
  return result;
}
Result cuStreamBeginCapture_v2(void* handle, CaptureMode mode) {
  Stream* stream = nullptr;
  Result result = Enter("cuStreamBeginCapture_v2", kCall);
  if (result == Result::kSuccess) result = FindStream(handle, &stream);
  if (result != Result::kSuccess) return result;
  if (stream->order() != Stream::Order::kLegacy)
    return BeginCapture(stream, static_cast<int>(mode));
  return Refuse(kCaptureUnsupported, "the legacy stream cannot be captured");
}
Result cuStreamEndCapture(void* handle, void** graph) {
  Stream* stream = nullptr;
  Result result = Enter("cuStreamEndCapture", kCall);
  if (result == Result::kSuccess) result = FindStream(handle, &stream);
  if (result != Result::kSuccess) return result;
  Graph* ended = nullptr;
  result = MayEndHere(stream);
  if (result == Result::kSuccess) result = EndCapture(stream, &ended);
  *graph = ended;
  return result;
}

Result cuLaunchHostFunc(void* handle, void (*function)(void*), void* user_data) {
  Stream* stream = nullptr;
  Result result = Enter("cuLaunchHostFunc", kCall);
  if (result == Result::kSuccess) result = FindHere(handle, &stream);
  if (result != Result::kSuccess) return result;
  return stream->Enqueue([=] {
    const CallbackScope scope;
    function(user_data);
    return Result::kSuccess;
  });
}

// For tests: how many streams of this thread's device have the priority.
int SimStreamsOfPriority(int priority) {
  const std::vector<Stream*> streams = StreamsOf(CurrentContext());
  return static_cast<int>(std::count_if(streams.begin(), streams.end(), [&](const Stream* stream) {
    return stream->priority == priority;
  }));
}

// For tests: a held stream begins nothing until it is released.
Result SimHoldStream(void* handle, int held) {
  Stream* stream = nullptr;
  const Result result = FindStream(handle, &stream);
  if (result == Result::kSuccess) stream->Hold(held != 0);
  return result;
}

}  // extern "C"
