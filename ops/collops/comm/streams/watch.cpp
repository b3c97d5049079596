#include "collops/comm/streams/watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collops/core/process/per_process.h"

namespace collops {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(100);

class Watcher {
 public:
  void Add(Watched* watched) {
    const std::lock_guard<std::mutex> lock(mutex_);
    watched_.push_back(watched);
    if (!std::exchange(started_, true)) std::thread([this] { Run(); }).detach();
    added_.notify_all();
  }

  // Look() runs under the lock, so none runs now.
  void Remove(Watched* watched) {
    const std::lock_guard<std::mutex> lock(mutex_);
    watched_.erase(std::remove(watched_.begin(), watched_.end(), watched), watched_.end());
  }

 private:
  // The object is never destroyed, so the thread may run until the process ends.
  void Run() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        added_.wait(lock, [this] { return !watched_.empty(); });
        for (Watched* const each : watched_) each->Look();
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<Watched*> watched_;
  bool started_ = false;
};

PerProcess<Watcher> watcher_here;

}  // namespace

void Watch(Watched* watched) {
  watcher_here.Get().Add(watched);
}

void Forget(Watched* watched) {
  watcher_here.Get().Remove(watched);
}

}  // namespace collops
