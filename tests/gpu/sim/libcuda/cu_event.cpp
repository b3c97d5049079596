// Events of a simulated libcuda, from its published signatures.
#include <set>

#include "collops/kernels/cuda/driver.h"
#include "driver/stream.h"
#include "sim/capture.h"

namespace collops_sim {
namespace {

constexpr unsigned kCall = kNeedsInit | kNeedsContext;
constexpr unsigned kEventInterprocess = 4;

struct Events {
  std::mutex mutex;
  std::set<void*> all;
};

Events& GetEvents() {
  static auto* const events = new Events;
  return *events;
}

// Events are few; none is given back, since a stream may still have to reach it.
Result FindEvent(void* handle, Event** event) {
  Events& events = GetEvents();
  const std::lock_guard<std::mutex> lock(events.mutex);
  *event = static_cast<Event*>(handle);
  if (events.all.count(handle) != 0) return Result::kSuccess;
  return Refuse(kInvalidHandle, "there is no such event");
}

Result LastRecordOf(void* handle, std::shared_ptr<Mark>* mark) {
  Event* event = nullptr;
  const Result result = FindEvent(handle, &event);
  return result == Result::kSuccess ? LastRecord(event, mark) : result;
}

}  // namespace

}  // namespace collops_sim

using namespace collops_sim;

extern "C" {

Result cuEventCreate(void** event, unsigned int flags) {
  const Result result = Enter("cuEventCreate", kCall);
  if (result != Result::kSuccess) return result;
  auto* const made = new Event;
  made->home = CurrentContext();
  made->is_timed = (flags & collops::cuda::kEventDisableTiming) == 0;
  if ((flags & kEventInterprocess) != 0 && made->is_timed) {
    delete made;
    return Refuse(kInvalidValue, "events of several processes have no timing");
  }
  Events& events = GetEvents();
  const std::lock_guard<std::mutex> lock(events.mutex);
  events.all.insert(made);
  *event = made;
  return Result::kSuccess;
}
Result cuEventDestroy_v2(void* event) {
  const Result result = Enter("cuEventDestroy_v2", kNeedsInit);
  if (result != Result::kSuccess) return result;
  Events& events = GetEvents();
  const std::lock_guard<std::mutex> lock(events.mutex);
  return events.all.erase(event) != 0 ? result : Refuse(kInvalidHandle, "no such event");
}

Result cuEventRecord(void* handle, void* stream_handle) {
  Event* event = nullptr;
  Stream* stream = nullptr;
  Result result = Enter("cuEventRecord", kCall);
  if (result == Result::kSuccess) result = FindEvent(handle, &event);
  if (result == Result::kSuccess) result = FindStream(stream_handle, &stream);
  if (result != Result::kSuccess) return result;
  if (event->home != stream->home()) {
    return Refuse(kInvalidHandle, "event and stream are of different contexts");
  }
  return Record(event, stream);
}
Result cuStreamWaitEvent(void* stream_handle, void* handle, unsigned int) {
  Event* event = nullptr;
  Stream* stream = nullptr;
  Result result = Enter("cuStreamWaitEvent", kCall);
  if (result == Result::kSuccess) result = FindEvent(handle, &event);
  if (result == Result::kSuccess) result = FindStream(stream_handle, &stream);
  if (result != Result::kSuccess) return result;
  return WaitOn(event, stream);
}

Result cuEventQuery(void* event) {
  std::shared_ptr<Mark> mark;
  Result result = Enter("cuEventQuery", kCall | kIsUnsafe);
  if (result == Result::kSuccess) result = LastRecordOf(event, &mark);
  if (result != Result::kSuccess || mark == nullptr) return result;
  return mark->IsReached() ? Result::kSuccess : Result::kNotReady;
}
Result cuEventSynchronize(void* event) {
  std::shared_ptr<Mark> mark;
  Result result = Enter("cuEventSynchronize", kCall | kIsUnsafe);
  if (result == Result::kSuccess) result = LastRecordOf(event, &mark);
  return result != Result::kSuccess || mark == nullptr ? result : mark->Wait();
}
Result cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  Result result = Enter("cuEventElapsedTime", kCall);
  std::shared_ptr<Mark> marks[2];
  void* const handles[] = {begin, end};
  for (int i = 0; i < 2 && result == Result::kSuccess; ++i) {
    result = LastRecordOf(handles[i], &marks[i]);
    if (result != Result::kSuccess) return result;
    if (!static_cast<Event*>(handles[i])->is_timed || marks[i] == nullptr) {
      return Refuse(kInvalidHandle, "an event has no timing, or was not recorded");
    }
    if (!marks[i]->IsReached()) return Result::kNotReady;
  }
  if (result != Result::kSuccess) return result;
  *milliseconds = std::chrono::duration<float, std::milli>(marks[1]->when - marks[0]->when).count();
  return result;
}

}  // extern "C"
