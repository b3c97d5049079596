#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "collops/kernels/cuda/driver.h"
#include "driver/event.h"
#include "driver/stream.h"

// Streams that are captured into graphs, with CUDA's rules on what else may be called meanwhile.
namespace collops_sim {

// Shared by the graphs that hold it; `destroy` runs when the last one lets it go.
struct UserObject {
  void (*destroy)(void*) = nullptr;
  void* pointer = nullptr;
  unsigned references = 0;
};
void ReleaseUserObject(UserObject* object, unsigned count);

// What captured streams were given, in its order. The stream that began is lane 0; every stream
// that joined has a lane of its own, so that lanes are ordered by their events only.
struct Graph {
  struct Node {
    int lane = 0;
    Stream::Launch launch;  // null: a record or a wait
    std::vector<const void*> used;
    int record = -1;
    int wait = -1;
  };
  std::vector<Node> nodes;
  std::vector<Context*> contexts;  // by lane
  int num_records = 0;
  std::vector<std::pair<UserObject*, unsigned>> objects;

  Graph() = default;
  Graph(const Graph& other);
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  // Whether what every lane does is waited for by another in the end.
  bool IsJoined() const;
};

struct Capture {
  uint64_t id = 0;
  Graph* graph = nullptr;  // null once it has ended
  std::vector<Stream*> streams;
  std::thread::id begun_by;
  collops::cuda::CaptureMode mode = collops::cuda::CaptureMode::kGlobal;
  bool is_invalid = false;
};

// Guards all captures and graphs.
std::mutex& CaptureMutex();

// kSuccess, or the answer to a call that this thread may not make now; the captures that forbid it
// are invalid from then on.
Result CaptureForbids(const std::string& function);
// An illegal call on a captured stream: its capture is invalid from then on.
Result RefuseInCapture(Stream* stream, const std::string& what);

// Whether a stream of which the host asks is the legacy one, and waits for a captured stream.
Result AskLegacy(const Stream* stream);

// Each sets `taken` if the stream is captured and the graph has got it.
Result PutIntoGraph(Stream* stream, const Stream::Launch& launch,
                    const std::vector<const void*>& used, bool* taken);
Result RecordIntoGraph(Stream* stream, Event* event, bool* taken);
// A stream that waits for a captured event joins that capture.
Result WaitInGraph(Stream* stream, Event* event, bool* taken);

Result BeginCapture(Stream* stream, collops::cuda::CaptureMode mode);
Result EndCapture(Stream* stream, Graph** graph);
collops::cuda::CaptureMode ExchangeMode(collops::cuda::CaptureMode mode);

}  // namespace collops_sim
