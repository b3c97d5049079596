#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/context.h"

// Streams of the simulated GPUs: every stream is a queue with a thread of its own that sleeps for a
// random moment before each task, so that a wait that is missing shows.
// With CUDA_DEVICE_MAX_CONNECTIONS=n the streams of a context, and so the branches of graphs, share
// n hardware queues: a task begins when those that were put into its queue before have begun, also
// those of other streams, and the waits for events among them have ended. Without it each stream
// has a queue.
namespace collops_sim {

struct Capture;

class Stream {
 public:
  using Task = std::function<Result()>;
  using Launch = std::function<Result(Stream*)>;

  // Who waits for whom unasked: the legacy stream for all blocking ones, and they for it.
  enum class Order { kLegacy, kBlocking, kNonBlocking };

  Stream(Context* context, Order order)
      : context_(context), order_(order), number_(context->num_streams++) {}

  Context* context() const { return context_; }
  Order order() const { return order_; }
  // On a captured stream, the graph gets the task instead. The device memory at `used` may not be
  // freed until the task has run. `is_wait`: it waits for an event, and so holds up a queue.
  Result Enqueue(Task task, const std::vector<const void*>& used = {}, bool is_wait = false);
  // Does `launch`, which puts something on the stream; on a captured one, each replay does it.
  Result Do(Launch launch, const std::vector<const void*>& used = {});
  // Waits until everything that is queued now has run; the context's error.
  Result Synchronize();
  bool Idle();
  // Waits for everything that is queued, but on a held stream only for what runs.
  void WaitUntilNothingRuns();
  void WaitUntil(uint64_t finished);
  uint64_t queued();
  // COLLOPS_SIM_QUEUE=n: waits until fewer than n tasks are queued, as a launch does for room.
  void WaitForRoom();
  // A held stream begins no task; the one that runs goes on.
  void Hold(bool held);

  int priority = 0;

  bool IsCapturing();
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

  Context* const context_;
  const Order order_;
  const int number_;  // in the context
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  uint64_t queued_ = 0;
  uint64_t finished_ = 0;
  bool started_ = false;
  bool held_ = false;
};

// The stream behind a handle of any context; null and 1 are the legacy stream of the current one, 2
// is this thread's own. kInvalidHandle if there is none.
Result FindStream(void* handle, Stream** stream);
// The same for a call that puts work on it: it must be the current context's.
Result FindHere(void* handle, Stream** stream);
Stream* CreateStream(Context* context, Stream::Order order);
bool DestroyStream(void* handle);
std::vector<Stream*> StreamsOf(const Context* context);

}  // namespace collops_sim
