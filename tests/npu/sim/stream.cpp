#include "stream.h"

#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "memory.h"
#include "report.h"

namespace collops_sim {
namespace {

thread_local int current_device = -1;

// Never destroyed: a stream's thread may outlive main().
struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
  Stream* own[kNumDevices] = {};  // what a null handle means
};

Streams& GetStreams() {
  static Streams* const streams = new Streams;
  return *streams;
}

void SleepAMoment() {
  const char* text = std::getenv("COLLOPS_SIM_DELAY_US");
  const int most = text == nullptr ? 500 : std::atoi(text);
  thread_local std::minstd_rand random(std::random_device{}());
  if (most > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
}

}  // namespace

void Stream::Enqueue(Task task, const std::vector<const void*>& used) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (capture_ != nullptr) {
    capture_->graph->nodes.push_back(
        {lane_, [task = std::move(task), used](Stream* stream) { stream->Enqueue(task, used); }});
    return;
  }
  items_.push_back({std::move(task), Pin(used)});
  ++queued_;
  if (!started_) std::thread([this] { Work(); }).detach();
  started_ = true;
  changed_.notify_all();
}

void Stream::Do(const Launch& launch) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (capture_ != nullptr) return capture_->graph->nodes.push_back({lane_, launch});
  }
  launch(this);
}

void Stream::Hold(bool held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void Stream::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !items_.empty() && !held_; });
    Item item = std::move(items_.front());
    items_.pop_front();
    const bool failed = error_ != 0;
    lock.unlock();
    SleepAMoment();
    const int error = failed ? 0 : item.task();
    item = {};
    lock.lock();
    if (error_ == 0) error_ = error;
    ++finished_;
    changed_.notify_all();
  }
}

int Stream::Synchronize(int timeout_ms) {
  constexpr int kTimeout = 507046;  // ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t last = queued_;
  const auto done = [&] { return finished_ >= last; };
  if (timeout_ms < 0) {
    changed_.wait(lock, done);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), done)) {
    return kTimeout;
  }
  return error_;
}

bool Stream::Idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ == queued_;
}

Stream* FindStream(void* handle) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  if (handle == nullptr) {
    if (current_device < 0) return nullptr;
    Stream*& own = streams.own[current_device];
    if (own == nullptr) streams.all.insert(own = new Stream(current_device));
    return own;
  }
  auto* stream = static_cast<Stream*>(handle);
  return streams.all.count(stream) != 0 ? stream : nullptr;
}

Stream* FindStreamHere(void* handle, int* code) {
  constexpr int kStreamOfAnotherContext = 107003;
  *code = NeedDevice();
  if (*code != 0) return nullptr;
  Stream* stream = FindStream(handle);
  if (stream != nullptr && stream->device() == current_device) return stream;
  *code = Report(kStreamOfAnotherContext, "the stream is none of this thread's device");
  return nullptr;
}

Stream* CreateStream(int device) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  return *streams.all.insert(new Stream(device)).first;
}

// Its thread sleeps on: the memory is not given back.
bool DestroyStream(void* handle) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  return streams.all.erase(static_cast<Stream*>(handle)) != 0;
}

int SynchronizeAll(int device, int timeout_ms) {
  std::vector<Stream*> all;
  {
    Streams& streams = GetStreams();
    const std::lock_guard<std::mutex> lock(streams.mutex);
    all.assign(streams.all.begin(), streams.all.end());
  }
  int error = 0;
  for (Stream* stream : all) {
    if (stream->device() != device) continue;
    const int found = stream->Synchronize(timeout_ms);
    if (error == 0) error = found;
  }
  return error;
}

int CurrentDevice() {
  return current_device;
}

int NeedDevice() {
  constexpr int kNoContext = 107002;
  return current_device < 0 ? Report(kNoContext, "no device is set in this thread") : 0;
}

void SetCurrentDevice(int device) {
  current_device = device;
}

const char* SocName() {
  const char* name = std::getenv("COLLOPS_SIM_SOC");
  return name == nullptr ? "Ascend910B1" : name;
}

}  // namespace collops_sim
