#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sim/stream.h"

// Events, and streams that are captured into graphs.
namespace collops_sim {

struct Event {
  Home* home = nullptr;
  bool is_timed = true;
  std::mutex mutex;
  std::shared_ptr<Mark> last;        // null: never recorded
  std::shared_ptr<Capture> capture;  // not null: it was last recorded into a graph, as `record`
  int record = 0;
};

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
  std::vector<Home*> homes;        // by lane
  std::vector<Stream*> replaying;  // the lanes behind lane 0, which is the stream of the replay
  int num_records = 0;
  std::vector<std::shared_ptr<void>> kept;  // what lives as long as the graph and its copies

  // Whether what every lane does is waited for by another in the end.
  bool IsJoined() const;
  // Puts everything on `stream`, and on streams of the graph.
  Answer Replay(Stream* stream);
};

struct Capture {
  uint64_t id = 0;
  Graph* graph = nullptr;  // null once it has ended
  std::vector<Stream*> streams;
  std::thread::id begun_by;
  int mode = 0;
  Answer invalid = kFine;  // what is answered from then on
};

// Guards all captures and graphs.
std::mutex& CaptureMutex();
// Those that have not ended.
std::vector<std::shared_ptr<Capture>>& Captures();

// Of the skin: an illegal call on a captured stream, which may make the capture invalid.
Answer RefuseInCapture(const std::shared_ptr<Capture>& capture, Answer answer,
                       const std::string& text);
// Of the skin: whether a stream that is not captured may get work while others are captured.
Answer CheckUncaptured(const Stream* stream);
// Of the skin: whether a stream may join a capture.
Answer CheckJoining(const std::shared_ptr<Capture>& capture, const Stream* stream);

// Sets `taken` if the stream is captured and the graph has got it.
Answer PutIntoGraph(Stream* stream, const Stream::Launch& launch,
                    const std::vector<const void*>& used, bool* taken);
Answer Record(Event* event, Stream* stream);
// A stream that waits for a captured event joins that capture.
Answer WaitOn(Event* event, Stream* stream);
// The event's last record, or null, for a host that asks; kAskedOfGraph if a graph has it.
Answer LastRecord(Event* event, std::shared_ptr<Mark>* mark);
// What is put on `after` from now on waits for all that is on `before`, captured or not.
Answer OrderStreams(Stream* before, Stream* after);

Answer BeginCapture(Stream* stream, int mode);
// `graph` stays as it was where nothing has ended, and is null where it was no graph.
Answer EndCapture(Stream* stream, Graph** graph);

}  // namespace collops_sim
