#include "collops/kernels/cuda/memory/running_calls.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "collops/core/process/per_process.h"

namespace collops::cuda {
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
                             const std::function<void()>& step) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  for (;; SleepAMoment()) {
    const std::unique_lock<std::shared_mutex> alone(LaunchingOn(device));
    if (AnyRuns(driver, device) && std::chrono::steady_clock::now() < limit) continue;
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
