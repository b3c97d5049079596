#include "collops/kernels/cuda/memory/running_calls.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "collops/core/process/per_process.h"

namespace collops::cuda {
namespace {

struct Calls {
  std::mutex mutex;
  std::map<const void*, Event> last;
};
PerProcess<Calls> calls_here;

}  // namespace

void RunningCalls::Note(const void* owner, Event event) {
  Calls& calls = calls_here.Get();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  calls.last[owner] = event;
}

void RunningCalls::Forget(const void* owner) {
  Calls& calls = calls_here.Get();
  const std::lock_guard<std::mutex> lock(calls.mutex);
  calls.last.erase(owner);
}

Status RunningCalls::Await(const DriverApi& driver, const std::function<Status()>& may_wait) {
  Calls& calls = calls_here.Get();
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(calls.mutex);
      const bool any = std::any_of(calls.last.begin(), calls.last.end(), [&](const auto& one) {
        return driver.event_query(one.second) == Result::kNotReady;
      });
      if (!any) return Ok();
    }
    COLLOPS_RETURN_IF_ERROR(may_wait());
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace collops::cuda
