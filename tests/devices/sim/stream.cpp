#include "sim/stream.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "sim/capture.h"
#include "sim/memory.h"

namespace collops_sim {
namespace {

// Never destroyed: a stream's thread may outlive main().
struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
  std::map<Home*, Stream*> defaults;
};

Streams& GetStreams() {
  static Streams* const streams = new Streams;
  return *streams;
}

void SleepAMoment() {
  const char* text = std::getenv("COLLOPS_SIM_DELAY_US");
  const int most = text == nullptr ? kMostDelayUs : std::atoi(text);
  thread_local std::minstd_rand random(std::random_device{}());
  if (most > 0) {
    const auto delay = static_cast<int>(random() % static_cast<unsigned>(most));
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
  }
}

// Whether `done` came within so many seconds; negative ones are no limit.
template <class Done>
bool WaitFor(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, double seconds,
             const Done& done) {
  if (seconds >= 0) return changed.wait_for(lock, std::chrono::duration<double>(seconds), done);
  changed.wait(lock, done);
  return true;
}

}  // namespace

Answer Mark::Reach() {
  const std::lock_guard<std::mutex> lock(mutex);
  done = true;
  when = std::chrono::steady_clock::now();
  changed.notify_all();
  return kFine;
}

Answer Mark::Wait() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [this] { return done; });
  return kFine;
}

bool Mark::IsReached() {
  const std::lock_guard<std::mutex> lock(mutex);
  return done;
}

Answer Stream::Enqueue(Task task, const std::vector<const void*>& used, bool is_wait) {
  return Do(
      [task = std::move(task), used, is_wait](Stream* stream) {
        stream->Put({task, Pin(used), {}, is_wait});
        return kFine;
      },
      used);
}

Answer Stream::Do(Launch launch, const std::vector<const void*>& used) {
  bool taken = false;
  const Answer answer = PutIntoGraph(this, launch, used, &taken);
  if (taken || answer != kFine) return answer;
  return launch(this);
}

// Under the device's mutex, so that all streams agree on what was enqueued first.
void Stream::Put(Item item) {
  const std::lock_guard<std::mutex> order(home_->enqueuing);
  if (order_ == Order::kLegacy) {
    for (Stream* other : StreamsOf(home_)) {
      if (other->order() == Order::kBlocking) item.after.push_back({other, other->queued()});
    }
  } else if (order_ == Order::kBlocking) {
    Stream* const legacy = DefaultStream(home_);
    item.after.push_back({legacy, legacy->queued()});
  }
  if (const int queues = NumQueues(); queues > 0) {
    home_->queues.resize(static_cast<size_t>(queues));
    std::shared_future<void>& last = home_->queues[static_cast<size_t>(number_ % queues)];
    item.before = last;
    item.begun = std::make_shared<std::promise<void>>();
    last = item.begun->get_future().share();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  items_.push_back(std::move(item));
  ++queued_;
  if (!started_) std::thread([this] { Work(); }).detach();
  started_ = true;
  changed_.notify_all();
}

void Stream::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !items_.empty() && !held_; });
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    for (const auto& [other, count] : item.after) other->WaitUntil(count);
    if (item.before.valid()) item.before.wait();
    SleepAMoment();
    if (item.begun != nullptr && !item.is_wait) item.begun->set_value();
    // Behind a device's error tasks are run, too, since events must be reached; kernels look at it.
    const bool is_skipped = kErrorsAreOfStreams && Error() != 0;
    const Answer answer = is_skipped ? kFine : item.task();
    if (item.begun != nullptr && item.is_wait) item.begun->set_value();
    int none = 0;
    if (answer != kFine) Error().compare_exchange_strong(none, static_cast<int>(answer));
    item = {};
    lock.lock();
    ++finished_;
    changed_.notify_all();
  }
}

void Stream::WaitUntil(uint64_t finished) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return finished_ >= finished; });
}

void Stream::WaitForRoom() {
  const char* text = std::getenv("COLLOPS_SIM_QUEUE");
  if (text == nullptr || IsCapturing()) return;
  const uint64_t most = std::strtoull(text, nullptr, 10);
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return queued_ - finished_ < most; });
}

uint64_t Stream::queued() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queued_;
}

bool Stream::Finish(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t last = queued_;
  return WaitFor(changed_, lock, seconds, [&] { return finished_ >= last; });
}

bool Stream::FinishWhatRuns(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  return WaitFor(changed_, lock, seconds,
                 [&] { return queued_ - finished_ == items_.size() && (held_ || items_.empty()); });
}

bool Stream::Idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ == queued_;
}

void Stream::Hold(bool held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

bool Stream::IsCapturing() {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  return capture != nullptr;
}

Stream* KnownStream(void* handle) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  auto* const stream = static_cast<Stream*>(handle);
  return streams.all.count(stream) != 0 ? stream : nullptr;
}

Stream* DefaultStream(Home* home) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  Stream*& found = streams.defaults[home];
  constexpr auto kOrder = kHasLegacyStream ? Stream::Order::kLegacy : Stream::Order::kNonBlocking;
  if (found == nullptr) streams.all.insert(found = new Stream(home, kOrder));
  return found;
}

Stream* CreateStream(Home* home, Stream::Order order) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  return *streams.all.insert(new Stream(home, order)).first;
}

// Its thread sleeps on: the memory is not given back.
bool DestroyStream(void* handle) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  return streams.all.erase(static_cast<Stream*>(handle)) != 0;
}

std::vector<Stream*> StreamsOf(const Home* home) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  std::vector<Stream*> found;
  std::copy_if(streams.all.begin(), streams.all.end(), std::back_inserter(found),
               [&](Stream* stream) { return stream->home() == home; });
  return found;
}

}  // namespace collops_sim
