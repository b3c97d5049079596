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

enum CaptureStatus { kNone = 0, kActive = 1 };

}  // namespace

extern "C" {

int aclmdlRICaptureBegin(void* handle, int) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  auto* const graph = new Graph;
  code = stream->BeginCapture(graph);
  if (code == 0) return 0;
  delete graph;
  return Report(code, "the stream is captured already");
}
int aclmdlRICaptureEnd(void* handle, void** graph) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  Graph* ended = nullptr;
  code = stream->EndCapture(&ended);
  if (code == 0) {
    *graph = ended;
    return 0;
  }
  if (ended == nullptr) return Report(code, "no capture began on this stream");
  delete ended;
  *graph = nullptr;
  return Report(code, "a stream that joined the capture was not joined back");
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
  static_cast<Graph*>(graph)->Replay(stream);
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
