// Captured graphs of a simulated libascendcl, from its published signatures.
#include <cstdint>

#include "report.h"
#include "stream.h"

using collops_sim::FindStreamHere;
using collops_sim::Graph;
using collops_sim::Report;
using collops_sim::Stream;

namespace {

constexpr int kInvalidParam = 107000;  // ACL_ERROR_RT_PARAM_INVALID
constexpr int kNotCaptured = 107029;   // ACL_ERROR_RT_STREAM_NOT_CAPTURED

enum CaptureStatus { kNone = 0, kActive = 1 };

}  // namespace

extern "C" {

int aclmdlRICaptureBegin(void* handle, int) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  auto* const graph = new Graph;
  if (stream->BeginCapture(graph)) return 0;
  delete graph;
  return Report(kInvalidParam, "the stream is captured already");
}
int aclmdlRICaptureEnd(void* handle, void** graph) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  *graph = stream->EndCapture();
  return *graph == nullptr ? Report(kNotCaptured, "the stream is not captured") : 0;
}
int aclmdlRICaptureGetInfo(void* handle, int* status, void** graph) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  *graph = stream->graph();
  *status = *graph == nullptr ? kNone : kActive;
  return 0;
}
int aclmdlRICaptureThreadExchangeMode(int*) {
  return 0;
}

int aclmdlRIExecuteAsync(void* graph, void* handle) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  for (const Stream::Launch& launch : static_cast<Graph*>(graph)->launches) launch(stream);
  return 0;
}
// The caller has waited for its replays.
int aclmdlRIDestroy(void* handle) {
  auto* const graph = static_cast<Graph*>(handle);
  if (graph->on_destroyed != nullptr) graph->on_destroyed(graph->user_data);
  delete graph;
  return 0;
}
// CANN takes several functions for a graph, but each of them once; one will do here.
int aclmdlRIDestroyRegisterCallback(void* handle, void (*function)(void*), void* user_data) {
  auto* const graph = static_cast<Graph*>(handle);
  if (function == nullptr || graph->on_destroyed != nullptr) {
    return Report(kInvalidParam, "the graph has this callback already");
  }
  graph->on_destroyed = function;
  graph->user_data = user_data;
  return 0;
}

}  // extern "C"
