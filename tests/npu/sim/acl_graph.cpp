// Captured graphs of a simulated libascendcl, from its published signatures.
#include <cstdint>
#include <utility>

#include "acl.h"

using namespace collops_sim;

namespace {

constexpr int kInvalidParam = 107000;  // ACL_ERROR_RT_PARAM_INVALID

enum CaptureStatus { kNone = 0, kActive = 1 };
enum CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
thread_local int thread_mode = kGlobal;

}  // namespace

bool collops_sim::CaptureForbids() {
  if (thread_mode == kRelaxed) return false;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  for (const auto& capture : Captures()) {
    const bool own = capture->begun_by == std::this_thread::get_id();
    if (own ? capture->mode != kRelaxed : capture->mode == kGlobal && thread_mode == kGlobal) {
      return true;
    }
  }
  return false;
}

extern "C" {

int aclmdlRICaptureBegin(void* handle, int mode) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  return stream == nullptr ? code : BeginCapture(stream, mode);
}
int aclmdlRICaptureEnd(void* handle, void** graph) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  auto* ended = static_cast<Graph*>(*graph);
  code = EndCapture(stream, &ended);
  *graph = ended;
  return code;
}
int aclmdlRICaptureGetInfo(void* handle, int* status, void** graph) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  *graph = stream->capture == nullptr ? nullptr : stream->capture->graph;
  *status = *graph == nullptr ? kNone : kActive;
  return 0;
}
int aclmdlRICaptureThreadExchangeMode(int* mode) {
  *mode = std::exchange(thread_mode, *mode);
  return 0;
}

int aclmdlRIExecuteAsync(void* graph, void* handle) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  return stream == nullptr ? code : static_cast<Graph*>(graph)->Replay(stream);
}
// The caller has waited for its replays.
int aclmdlRIDestroy(void* handle) {
  delete static_cast<Graph*>(handle);
  return 0;
}
// CANN takes several functions for a graph, but each of them once; one will do here.
int aclmdlRIDestroyRegisterCallback(void* handle, void (*function)(void*), void* user_data) {
  auto* const graph = static_cast<Graph*>(handle);
  if (function == nullptr || !graph->kept.empty()) {
    return Refuse(kInvalidParam, "the graph has this callback already");
  }
  graph->kept.push_back(std::shared_ptr<void>(user_data, function));
  return 0;
}

}  // extern "C"
