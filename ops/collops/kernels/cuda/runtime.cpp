#include "collops/kernels/cuda/runtime.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"

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

namespace {

struct Call {
  int device;
  Event event;
};
struct Calls {
  std::mutex mutex;
  std::map<const void*, Call> last;
  std::map<int, std::shared_mutex> launching;  // by device
};
PerProcess<Calls> calls_here;

constexpr int kAnyDevice = -1;

bool AnyRuns(const DriverApi& driver, int device) {
  Calls& calls = calls_here.Get();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  return std::any_of(calls.last.begin(), calls.last.end(), [&](const auto& one) {
    const Call& call = one.second;
    return (device == kAnyDevice || device == call.device) &&
           driver.event_query(call.event) == Result::kNotReady;
  });
}

std::shared_mutex& LaunchingOn(int device) {
  Calls& calls = calls_here.Get();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  return calls.launching[device];
}

void SleepAMoment() {
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

void RunningCalls::Note(const DriverApi& driver, const void* owner, Event event) {
  Device device = 0;
  // The caller has a current context, and could not act on an error.
  static_cast<void>(driver.ctx_get_device(&device));
  Calls& calls = calls_here.Get();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  calls.last[owner] = {device, event};
}

void RunningCalls::Forget(const void* owner) {
  Calls& calls = calls_here.Get();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  calls.last.erase(owner);
}

RunningCalls::Launching::Launching(int device) : lock_(LaunchingOn(device)) {}

void RunningCalls::DoBetween(const DriverApi& driver, int device, double limit_s,
                             const std::function<bool()>& is_harmless,
                             const std::function<void()>& step) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  for (;; SleepAMoment()) {
    const std::unique_lock<std::shared_mutex> alone(LaunchingOn(device));
    const bool is_late = std::chrono::steady_clock::now() >= limit;
    if (!is_late && !is_harmless() && AnyRuns(driver, device)) continue;
    step();
    return;
  }
}

Status RunningCalls::Await(const DriverApi& driver, const std::function<Status()>& may_wait) {
  while (AnyRuns(driver, kAnyDevice)) {
    COLLOPS_RETURN_IF_ERROR(may_wait());
    SleepAMoment();
  }
  return Ok();
}

}  // namespace collops::cuda
