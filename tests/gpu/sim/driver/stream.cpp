#include "driver/stream.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "driver/capture.h"
#include "driver/memory.h"

namespace collops_sim {
namespace {

// Never destroyed: a stream's thread may outlive main().
struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
  std::map<Context*, Stream*> legacy;
};

Streams& GetStreams() {
  static Streams* const streams = new Streams;
  return *streams;
}

thread_local std::map<Context*, Stream*> own_streams;

void SleepAMoment() {
  const char* text = std::getenv("COLLOPS_SIM_DELAY_US");
  const int most = text == nullptr ? 300 : std::atoi(text);
  thread_local std::minstd_rand random(std::random_device{}());
  if (most > 0) {
    const auto delay = static_cast<int>(random() % static_cast<unsigned>(most));
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
  }
}

// 0: as many as there are streams.
int NumQueues() {
  const char* const text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return text == nullptr ? 0 : std::atoi(text);
}

Stream* Legacy(Context* context) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  Stream*& legacy = streams.legacy[context];
  if (legacy == nullptr) streams.all.insert(legacy = new Stream(context, Stream::Order::kLegacy));
  return legacy;
}

Stream* OwnOfThread(Context* context) {
  Stream*& own = own_streams[context];
  if (own == nullptr) own = CreateStream(context, Stream::Order::kBlocking);
  return own;
}

}  // namespace

Result Stream::Enqueue(Task task, const std::vector<const void*>& used, bool is_wait) {
  return Do(
      [task = std::move(task), used, is_wait](Stream* stream) {
        Item item{task, Pin(used), {}, is_wait};
        stream->Put(std::move(item));
        return Result::kSuccess;
      },
      used);
}

Result Stream::Do(Launch launch, const std::vector<const void*>& used) {
  bool taken = false;
  const Result result = PutIntoGraph(this, launch, used, &taken);
  if (taken || result != Result::kSuccess) return result;
  return launch(this);
}

// Under the context's mutex, so that all streams agree on what was enqueued first.
void Stream::Put(Item item) {
  const std::lock_guard<std::mutex> order(context_->enqueuing);
  if (order_ == Order::kLegacy) {
    for (Stream* other : StreamsOf(context_)) {
      if (other->order() == Order::kBlocking) item.after.push_back({other, other->queued()});
    }
  } else if (order_ == Order::kBlocking) {
    Stream* const legacy = Legacy(context_);
    item.after.push_back({legacy, legacy->queued()});
  }
  if (const int queues = NumQueues(); queues > 0) {
    context_->queues.resize(static_cast<size_t>(queues));
    std::shared_future<void>& last = context_->queues[static_cast<size_t>(number_ % queues)];
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
    const Result result = item.task();
    if (item.begun != nullptr && item.is_wait) item.begun->set_value();
    // What comes behind is run, too, since events must be reached; kernels look at the error.
    int none = 0;
    if (result != Result::kSuccess) {
      context_->error.compare_exchange_strong(none, static_cast<int>(result));
    }
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

Result Stream::Synchronize() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t last = queued_;
  const auto limit = std::chrono::duration<double>(TimeoutS());
  if (!changed_.wait_for(lock, limit, [&] { return finished_ >= last; })) {
    Mistake("the host has waited for a stream for " + std::to_string(TimeoutS()) + " s");
    return kLaunchTimeout;
  }
  return static_cast<Result>(context_->error.load());
}

void Stream::WaitUntilNothingRuns() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto limit = std::chrono::duration<double>(TimeoutS());
  const bool idle = changed_.wait_for(lock, limit, [&] {
    return queued_ - finished_ == items_.size() && (held_ || items_.empty());
  });
  if (!idle) Mistake("a module is loaded while a kernel runs that does not end");
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

Result FindStream(void* handle, Stream** stream) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  Context* const context = CurrentContext();
  if (number <= 2 && context == nullptr) {
    return Refuse(Result::kInvalidContext, "a default stream without a current context");
  }
  if (number <= 2) {
    *stream = number == 2 ? OwnOfThread(context) : Legacy(context);
    return Result::kSuccess;
  }
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  *stream = static_cast<Stream*>(handle);
  if (streams.all.count(*stream) != 0) return Result::kSuccess;
  return Refuse(Result::kInvalidHandle, "there is no such stream");
}

Result FindHere(void* handle, Stream** stream) {
  const Result result = FindStream(handle, stream);
  if (result != Result::kSuccess || (*stream)->context() == CurrentContext()) return result;
  return Refuse(Result::kInvalidHandle, "the stream is not one of the current context");
}

Stream* CreateStream(Context* context, Stream::Order order) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  return *streams.all.insert(new Stream(context, order)).first;
}

// Its thread sleeps on: the memory is not given back.
bool DestroyStream(void* handle) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  return streams.all.erase(static_cast<Stream*>(handle)) != 0;
}

std::vector<Stream*> StreamsOf(const Context* context) {
  Streams& streams = GetStreams();
  const std::lock_guard<std::mutex> lock(streams.mutex);
  std::vector<Stream*> found;
  std::copy_if(streams.all.begin(), streams.all.end(), std::back_inserter(found),
               [&](Stream* stream) { return stream->context() == context; });
  return found;
}

}  // namespace collops_sim
