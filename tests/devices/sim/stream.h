#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "skin.h"

// Streams of a simulated device: every stream is a queue with a thread of its own that sleeps for a
// random moment before each task, so that a wait that is missing shows.
// The skin's NumQueues() may say that the streams of a device, and so the branches of graphs, share
// so many hardware queues: a task begins when those that were put into its queue before have begun,
// also those of other streams, and the waits for events among them have ended.
namespace collops_sim {

class Stream;
struct Capture;

// What the streams of one device share.
struct Home {
  int device = 0;
  std::atomic<int> error{0};  // the first of a task, unless errors are the streams'
  std::mutex enqueuing;       // orders the default stream with the others
  // Of each hardware queue: when what was put there last has begun.
  std::vector<std::shared_future<void>> queues;
  std::atomic<int> num_streams{0};
};

// What the record of an event promises; a wait keeps the promise it saw.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point when;

  Answer Reach();
  Answer Wait();
  bool IsReached();
};

class Stream {
 public:
  using Task = std::function<Answer()>;
  using Launch = std::function<Answer(Stream*)>;

  // Who waits for whom unasked: the legacy stream for all blocking ones, and they for it.
  enum class Order { kLegacy, kBlocking, kNonBlocking };

  Stream(Home* home, Order order) : home_(home), order_(order), number_(home->num_streams++) {}

  Home* home() const { return home_; }
  int device() const { return home_->device; }
  Order order() const { return order_; }
  // On a captured stream, the graph gets the task instead. The device memory at `used` may not be
  // freed until the task has run. `is_wait`: it waits for an event, and so holds up a queue.
  Answer Enqueue(Task task, const std::vector<const void*>& used = {}, bool is_wait = false);
  // Does `launch`, which puts something on the stream; on a captured one, each replay does it.
  Answer Do(Launch launch, const std::vector<const void*>& used = {});
  // Waits until everything that is queued now has run, so many seconds at most; false if it has
  // not. Negative seconds are no limit.
  bool Finish(double seconds);
  // The first error of a task: of the stream, or of its device.
  Answer error() const { return static_cast<Answer>(Error().load()); }
  bool Idle();
  // The same as Finish(), but a held stream need only end what runs.
  bool FinishWhatRuns(double seconds);
  // COLLOPS_SIM_QUEUE=n: waits until fewer than n tasks are queued, as a launch does for room.
  void WaitForRoom();
  // A held stream begins no task; the one that runs goes on.
  void Hold(bool held);
  bool IsCapturing();

  int priority = 0;
  // Under the mutex of captures.
  std::shared_ptr<Capture> capture;
  int lane = 0;  // of the capture

 private:
  struct Item {
    Task task;
    std::vector<std::shared_ptr<void>> pins;
    std::vector<std::pair<Stream*, uint64_t>> after;
    bool is_wait = false;
    // In the stream's hardware queue, if streams share them: the task before, and this one.
    std::shared_future<void> before = {};
    std::shared_ptr<std::promise<void>> begun = {};
  };

  void Put(Item item);
  void Work();
  void WaitUntil(uint64_t finished);
  uint64_t queued();
  std::atomic<int>& Error() const { return kErrorsAreOfStreams ? error_ : home_->error; }

  Home* const home_;
  const Order order_;
  const int number_;  // on the device
  mutable std::atomic<int> error_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  uint64_t queued_ = 0;
  uint64_t finished_ = 0;
  bool started_ = false;
  bool held_ = false;
};

// Null for a handle that is no stream, or is one no more.
Stream* KnownStream(void* handle);
// The device's own, which is made when it is first asked for.
Stream* DefaultStream(Home* home);
Stream* CreateStream(Home* home, Stream::Order order);
bool DestroyStream(void* handle);
std::vector<Stream*> StreamsOf(const Home* home);

}  // namespace collops_sim
