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

struct Graph;

// While a graph is captured: what its streams and events refer to.
struct Capture {
  std::mutex mutex;
  Graph* graph = nullptr;  // null once it has ended
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Mark> last;        // null: never recorded
  std::shared_ptr<Capture> capture;  // not null: it was last recorded into a graph, as `record`
  int record = 0;
};

class Stream {
 public:
  using Task = std::function<int()>;
  using Launch = std::function<void(Stream*)>;

  explicit Stream(int device) : device_(device) {}

  int device() const { return device_; }
  // On a captured stream, the graph gets the task instead. The device memory at `used` may not be
  // freed until the task has run.
  void Enqueue(Task task, const std::vector<const void*>& used = {});
  // Does `launch`, which puts something on the stream; on a captured one, each replay does it.
  void Do(const Launch& launch);
  // Waits until everything that is queued now has run; the first error of a task, then and later.
  int Synchronize(int timeout_ms);
  bool Idle();

  // A held stream begins no task; the one that runs goes on.
  void Hold(bool held);

  // 0, or aclError's number where the stream is not in the state for it.
  int BeginCapture(Graph* graph);
  int EndCapture(Graph** graph);
  // Null: not captured.
  Graph* graph();

  // For events: true if the stream is captured, and its graph has got the record or the wait. A
  // stream that waits for a captured event joins that capture.
  bool RecordIntoGraph(Event* event);
  int WaitInGraph(const std::shared_ptr<Capture>& capture, int record);

 private:
  void Work();

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Item {
    Task task;
    std::vector<std::shared_ptr<void>> pins;
  };
  std::deque<Item> items_;
  uint64_t queued_ = 0;
  uint64_t finished_ = 0;
  bool started_ = false;
  bool held_ = false;
  std::shared_ptr<Capture> capture_;  // null: not captured
  int lane_ = 0;                      // of the graph
  int error_ = 0;
};

// What captured streams were given, in its order. The stream that began is lane 0; every stream
// that joined has a lane of its own. Each replay puts lane 0 on a stream and the others on streams
// of the graph, so that lanes are ordered by their events only.
struct Graph {
  struct Node {
    int lane = 0;
    Stream::Launch launch;  // null: a record or a wait
    int record = -1;
    int wait = -1;
  };

  std::shared_ptr<Capture> capture;
  std::vector<Stream*> captured;  // by lane
  std::vector<Stream*> replaying;
  std::vector<Node> nodes;
  int num_records = 0;
  void (*on_destroyed)(void*) = nullptr;
  void* user_data = nullptr;

  void Replay(Stream* stream);
  // Whether what every lane does is waited for by another in the end.
  bool IsJoined() const;
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
int WaitOn(Event* event, Stream* stream);
bool Reached(Event* event);
void WaitFor(Event* event);
// Nobody can ask for an event that is part of a graph.
bool IsCaptured(Event* event);

// The device that this thread has set, or -1.
int CurrentDevice();
// 0, or aclError's number when this thread has none.
int NeedDevice();
void SetCurrentDevice(int device);
// COLLOPS_SIM_SOC, or Ascend910B1.
const char* SocName();

}  // namespace collops_sim
