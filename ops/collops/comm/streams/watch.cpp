// The watcher of this process: its threads look at the communicators whose calls end only by an
// abort.
#include "collops/comm/streams/stream_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "collops/core/process/per_process.h"

namespace collops {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks(100);
// A thread that has asked for so long waits in the device's library: another one asks the rest.
constexpr std::chrono::milliseconds kStuck(300);

class Watcher {
 public:
  void Add(StreamCommunicator* communicator) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back({communicator, false, false});
    asker_came_ = Clock::now();
    if (!std::exchange(started_, true)) {
      std::thread([this] { RunLooks(); }).detach();
      StartAsker();
    }
    changed_.notify_all();
  }

  void Remove(StreamCommunicator* communicator) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) {
      return each.communicator == communicator;
    });
    if (entry == entries_.end()) return;
    entry->gone = true;
    changed_.wait(lock, [&] { return !entry->looked && !entry->asked; });
    entries_.erase(entry);
  }

 private:
  struct Entry {
    StreamCommunicator* communicator;
    bool looked;  // Look() runs
    bool asked;   // Ask() runs
    bool gone = false;
  };

  // Runs `function` of each entry without the lock. `flag` says that it runs; an entry whose flag
  // is set already waits in another thread. Ends early if `goes_on` says so.
  template <typename GoesOn>
  void ForEach(std::unique_lock<std::mutex>* lock, bool Entry::* flag,
               void (StreamCommunicator::*function)(), GoesOn&& goes_on) {
    for (auto entry = entries_.begin(); entry != entries_.end() && goes_on(); ++entry) {
      if (entry->gone || (*entry).*flag) continue;
      (*entry).*flag = true;
      lock->unlock();
      (entry->communicator->*function)();
      lock->lock();
      (*entry).*flag = false;
      changed_.notify_all();
    }
  }

  // The object is never destroyed, so the threads may run until the process ends.
  void RunLooks() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !entries_.empty(); });
        ForEach(&lock, &Entry::looked, &StreamCommunicator::Look, [] { return true; });
        if (Clock::now() - asker_came_ > kStuck + kBetweenLooks) StartAsker();
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  // Under the lock. The last one that was started asks; others end when they come back.
  void StartAsker() {
    asker_came_ = Clock::now();
    try {
      std::thread([this, number = ++asker_] { RunAsks(number); }).detach();
    } catch (const std::system_error&) {
      // No thread can be had now: the next look tries again.
    }
  }

  void RunAsks(uint64_t number) {
    const auto is_mine = [&] {
      if (number != asker_) return false;
      asker_came_ = Clock::now();
      return true;
    };
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !entries_.empty(); });
        ForEach(&lock, &Entry::asked, &StreamCommunicator::Ask, is_mine);
        if (!is_mine()) return;
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Entry> entries_;
  uint64_t asker_ = 0;            // the number of the thread that asks
  Clock::time_point asker_came_;  // when it was last between two questions
  bool started_ = false;
};

PerProcess<Watcher> watcher_here;

}  // namespace

void Watch(StreamCommunicator* communicator) {
  watcher_here.Get().Add(communicator);
}

void Forget(StreamCommunicator* communicator) {
  watcher_here.Get().Remove(communicator);
}

}  // namespace collops
