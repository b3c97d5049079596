// Streams and events of a simulated libascendcl, from its published signatures.
#include <cstdint>

#include "memory.h"
#include "report.h"
#include "stream.h"

using collops_sim::CurrentDevice;
using collops_sim::Event;
using collops_sim::FindStream;
using collops_sim::FindStreamHere;
using collops_sim::NeedDevice;
using collops_sim::Report;
using collops_sim::Stream;

namespace {

constexpr int kInvalidHandle = 107003;
constexpr int kEventCaptured = 107028;  // ACL_ERROR_RT_EVENT_CAPTURED

int NewStream(void** stream) {
  if (const int code = NeedDevice()) return code;
  *stream = collops_sim::CreateStream(CurrentDevice());
  return 0;
}

// Events are few; none is given back, since a stream may still have to reach it.
int NewEvent(void** event) {
  if (const int code = NeedDevice()) return code;
  *event = new Event;
  return 0;
}

// 0, or why nobody can ask whether the event was reached.
int CheckAsked(void* event) {
  if (const int code = NeedDevice()) return code;
  if (!collops_sim::IsCaptured(static_cast<Event*>(event))) return 0;
  return Report(kEventCaptured, "the event is part of a graph");
}

Stream* Find(void* handle, int* code) {
  Stream* stream = FindStream(handle);
  *code = stream == nullptr ? Report(kInvalidHandle, "there is no such stream") : 0;
  return stream;
}

}  // namespace

extern "C" {

int aclrtCreateStream(void** stream) {
  return NewStream(stream);
}
int aclrtCreateStreamWithConfig(void** stream, uint32_t, uint32_t) {
  return NewStream(stream);
}
int aclrtDestroyStream(void* stream) {
  return collops_sim::DestroyStream(stream) ? 0 : kInvalidHandle;
}
int aclrtDestroyStreamForce(void* stream) {
  return aclrtDestroyStream(stream);
}
int aclrtSynchronizeStreamWithTimeout(void* handle, int32_t timeout_ms) {
  int code = 0;
  Stream* stream = Find(handle, &code);
  return stream == nullptr ? code : stream->Synchronize(timeout_ms);
}
int aclrtSynchronizeStream(void* handle) {
  return aclrtSynchronizeStreamWithTimeout(handle, -1);
}
int aclrtStreamQuery(void* handle, int* status) {
  int code = 0;
  Stream* stream = Find(handle, &code);
  if (stream != nullptr) *status = stream->Idle() ? 0 : 1;
  return code;
}
int aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
  if (const int code = NeedDevice()) return code;
  return collops_sim::SynchronizeAll(CurrentDevice(), timeout_ms);
}
int aclrtSynchronizeDevice() {
  return aclrtSynchronizeDeviceWithTimeout(-1);
}

int aclrtCreateEvent(void** event) {
  return NewEvent(event);
}
int aclrtCreateEventWithFlag(void** event, uint32_t) {
  return NewEvent(event);
}
int aclrtCreateEventExWithFlag(void** event, uint32_t) {
  return NewEvent(event);
}
int aclrtDestroyEvent(void*) {
  return NeedDevice();
}
int aclrtRecordEvent(void* event, void* handle) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream == nullptr) return code;
  collops_sim::Record(static_cast<Event*>(event), stream);
  return 0;
}
int aclrtStreamWaitEvent(void* handle, void* event) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  if (stream != nullptr) code = collops_sim::WaitOn(static_cast<Event*>(event), stream);
  return code == 0 ? 0 : Report(code, "the stream cannot wait for this event");
}
int aclrtResetEvent(void*, void*) {
  return 0;
}
int aclrtQueryEventStatus(void* event, int* status) {
  if (const int code = CheckAsked(event)) return code;
  *status = collops_sim::Reached(static_cast<Event*>(event)) ? 1 : 0;
  return 0;
}
int aclrtQueryEventWaitStatus(void* event, int* status) {
  if (const int code = CheckAsked(event)) return code;
  *status = collops_sim::Reached(static_cast<Event*>(event)) ? 0 : 1;
  return 0;
}
int aclrtSynchronizeEvent(void* event) {
  if (collops_sim::IsCaptured(static_cast<Event*>(event))) return CheckAsked(event);
  collops_sim::WaitFor(static_cast<Event*>(event));
  return 0;
}
int aclrtEventElapsedTime(float* ms, void*, void*) {
  *ms = 0.0F;
  return 0;
}

// For tests: a held stream begins nothing until it is released.
int SimHoldStream(void* handle) {
  int code = 0;
  Stream* stream = Find(handle, &code);
  if (stream != nullptr) stream->Hold(true);
  return code;
}
int SimReleaseStream(void* handle) {
  int code = 0;
  Stream* stream = Find(handle, &code);
  if (stream != nullptr) stream->Hold(false);
  return code;
}

}  // extern "C"
