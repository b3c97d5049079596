#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

// Streams and events of a simulated NPU: every stream is a queue with a thread of its own that
// sleeps for a random moment before each task, so that a wait that is missing shows.
namespace collops_sim {

// What one aclrtRecordEvent promises; a wait keeps the promise it saw.
struct Mark {
  std::mutex mutex;
  std::condition_variable reached;
  bool done = false;
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Mark> last;  // null: never recorded
};

struct Graph;

class Stream {
 public:
  using Task = std::function<int()>;
  using Launch = std::function<void(Stream*)>;

  explicit Stream(int device) : device_(device) {}

  int device() const { return device_; }
  // On a captured stream, the graph gets the task instead.
  void Enqueue(Task task);
  // Does `launch`, which puts something on the stream; on a captured one, each replay does it.
  void Do(const Launch& launch);
  // Waits until everything that is queued now has run; the first error of a task, then and later.
  int Synchronize(int timeout_ms);
  bool Idle();

  // A held stream begins no task; the one that runs goes on.
  void Hold(bool held);

  // Both are false, or null, where the stream is not in the state for it.
  bool BeginCapture(Graph* graph);
  Graph* EndCapture();
  // Null: not captured.
  Graph* graph();

 private:
  void Work();

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t queued_ = 0;
  uint64_t finished_ = 0;
  bool started_ = false;
  bool held_ = false;
  Graph* graph_ = nullptr;
  int error_ = 0;
};

// What a captured stream was given, in its order; each replay puts it on a stream again.
struct Graph {
  std::vector<Stream::Launch> launches;
  void (*on_destroyed)(void*) = nullptr;
  void* user_data = nullptr;
};

// The stream behind a handle: null means the current device's own; nullptr if it is none of ours.
Stream* FindStream(void* handle);
// The same for a call that puts work on it, which real CANN takes in a thread whose device is the
// stream's: the stream, or null and aclError's number.
Stream* FindStreamHere(void* handle, int* code);
Stream* CreateStream(int device);
bool DestroyStream(void* handle);
int SynchronizeAll(int device, int timeout_ms);

void Record(Event* event, Stream* stream);
void WaitOn(Event* event, Stream* stream);
bool Reached(Event* event);
void WaitFor(Event* event);

// The device that this thread has set, or -1.
int CurrentDevice();
// 0, or aclError's number when this thread has none.
int NeedDevice();
void SetCurrentDevice(int device);

}  // namespace collops_sim
