// Streams and events of a simulated libascendcl, from its published signatures.
#include <cstdint>

#include "acl.h"

using namespace collops_sim;

namespace {

constexpr int kInvalidHandle = 107003;
constexpr int kTimeout = 507046;  // ACL_ERROR_RT_STREAM_SYNC_TIMEOUT

int NewStream(void** stream) {
  if (const int code = NeedDevice()) return code;
  *stream = CreateStream(CurrentHome(), Stream::Order::kNonBlocking);
  return 0;
}

// Events are few; none is given back, since a stream may still have to reach it.
int NewEvent(void** event) {
  if (const int code = NeedDevice()) return code;
  *event = new Event;
  return 0;
}

// 0 and the event's last record, or why nobody can ask for it.
int FindRecord(void* event, std::shared_ptr<Mark>* mark) {
  const int code = NeedDevice();
  return code == 0 ? LastRecord(static_cast<Event*>(event), mark) : code;
}
int AskRecord(void* event, int* status, int reached) {
  std::shared_ptr<Mark> mark;
  const int code = FindRecord(event, &mark);
  if (code == 0) *status = mark == nullptr || mark->IsReached() ? reached : 1 - reached;
  return code;
}

int Synchronize(Stream* stream, int timeout_ms) {
  return stream->Finish(timeout_ms / 1000.0) ? stream->error() : kTimeout;
}

Stream* Find(void* handle, int* code) {
  Stream* stream = FindStream(handle);
  *code = stream == nullptr ? Refuse(kInvalidHandle, "there is no such stream") : 0;
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
  return DestroyStream(stream) ? 0 : kInvalidHandle;
}
int aclrtDestroyStreamForce(void* stream) {
  return aclrtDestroyStream(stream);
}
int aclrtSynchronizeStreamWithTimeout(void* handle, int32_t timeout_ms) {
  int code = 0;
  Stream* stream = Find(handle, &code);
  return stream == nullptr ? code : Synchronize(stream, timeout_ms);
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
  int error = NeedDevice();
  if (error != 0) return error;
  for (Stream* stream : StreamsOf(CurrentHome())) {
    const int found = Synchronize(stream, timeout_ms);
    if (error == 0) error = found;
  }
  return error;
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
  return stream == nullptr ? code : Record(static_cast<Event*>(event), stream);
}
int aclrtStreamWaitEvent(void* handle, void* event) {
  int code = 0;
  Stream* stream = FindStreamHere(handle, &code);
  return stream == nullptr ? code : WaitOn(static_cast<Event*>(event), stream);
}
int aclrtResetEvent(void*, void*) {
  return 0;
}
int aclrtQueryEventStatus(void* event, int* status) {
  return AskRecord(event, status, 1);
}
int aclrtQueryEventWaitStatus(void* event, int* status) {
  return AskRecord(event, status, 0);
}
int aclrtSynchronizeEvent(void* event) {
  std::shared_ptr<Mark> mark;
  const int code = LastRecord(static_cast<Event*>(event), &mark);
  return code != 0 || mark == nullptr ? code : mark->Wait();
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
