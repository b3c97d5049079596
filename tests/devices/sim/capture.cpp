#include "sim/capture.h"

#include <algorithm>

#include "sim/faults.h"

namespace collops_sim {
namespace {

// Each is called under the mutex of captures, and sets `taken` if the graph has got it.
Answer RecordIntoGraph(Stream* stream, Event* event, bool* taken) {
  *taken = stream->capture != nullptr;
  if (!*taken) return CheckUncaptured(stream);
  if (stream->capture->invalid != kFine) {
    return Refuse(stream->capture->invalid, "the stream's capture is invalid");
  }
  Graph* const graph = stream->capture->graph;
  const int record = graph->num_records++;
  graph->nodes.push_back({stream->lane, nullptr, {}, record, -1});
  const std::lock_guard<std::mutex> event_lock(event->mutex);
  event->last = nullptr;
  event->capture = stream->capture;
  event->record = record;
  return kFine;
}

Answer WaitInGraph(Stream* stream, Event* event, bool* taken) {
  const std::lock_guard<std::mutex> event_lock(event->mutex);
  const std::shared_ptr<Capture> capture = event->capture;
  *taken = stream->capture != nullptr || capture != nullptr;
  if (!*taken) return CheckUncaptured(stream);
  if (stream->capture != nullptr && stream->capture->invalid != kFine) {
    return Refuse(stream->capture->invalid, "the stream's capture is invalid");
  }
  if (capture == nullptr) {
    if (event->last == nullptr && kMayWaitForUnrecorded) return kFine;
    return RefuseInCapture(stream->capture, kWaitsOutside,
                           "a captured stream waits for work that is not captured");
  }
  if (capture->graph == nullptr) {
    return Refuse(kAskedOfGraph, "the event is part of a graph whose capture has ended");
  }
  const Answer may_join = CheckJoining(capture, stream);
  if (may_join != kFine) return may_join;
  if (stream->capture == nullptr) {
    stream->capture = capture;
    stream->lane = static_cast<int>(capture->streams.size());
    capture->streams.push_back(stream);
    capture->graph->homes.push_back(stream->home());
  } else if (stream->capture != capture) {
    static_cast<void>(RefuseInCapture(stream->capture, kJoinsCaptures, ""));
    return RefuseInCapture(capture, kJoinsCaptures, "a wait would join two captures");
  }
  capture->graph->nodes.push_back({stream->lane, nullptr, {}, -1, event->record});
  return kFine;
}

}  // namespace

std::mutex& CaptureMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::vector<std::shared_ptr<Capture>>& Captures() {
  static auto* const captures = new std::vector<std::shared_ptr<Capture>>;
  return *captures;
}

Answer PutIntoGraph(Stream* stream, const Stream::Launch& launch,
                    const std::vector<const void*>& used, bool* taken) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  *taken = stream->capture != nullptr;
  if (!*taken) return CheckUncaptured(stream);
  if (stream->capture->invalid != kFine) {
    return Refuse(stream->capture->invalid, "the stream's capture is invalid");
  }
  stream->capture->graph->nodes.push_back({stream->lane, launch, used});
  return kFine;
}

Answer Record(Event* event, Stream* stream) {
  bool taken = false;
  {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    const Answer answer = RecordIntoGraph(stream, event, &taken);
    if (taken || answer != kFine) return answer;
  }
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard<std::mutex> lock(event->mutex);
    event->last = mark;
    event->capture = nullptr;
  }
  return stream->Enqueue([mark] { return mark->Reach(); });
}

Answer WaitOn(Event* event, Stream* stream) {
  bool taken = false;
  {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    const Answer answer = WaitInGraph(stream, event, &taken);
    if (taken || answer != kFine) return answer;
  }
  std::shared_ptr<Mark> mark;
  {
    const std::lock_guard<std::mutex> lock(event->mutex);
    mark = event->last;
  }
  if (mark == nullptr) return kFine;
  return stream->Enqueue([mark] { return mark->Wait(); }, {}, true);
}

Answer LastRecord(Event* event, std::shared_ptr<Mark>* mark) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  if (event->capture != nullptr) return Refuse(kAskedOfGraph, "the event is part of a graph");
  *mark = event->last;
  return kFine;
}

Answer OrderStreams(Stream* before, Stream* after) {
  Event event;
  const Answer answer = Record(&event, before);
  return answer == kFine ? WaitOn(&event, after) : answer;
}

Answer BeginCapture(Stream* stream, int mode) {
  static uint64_t ids = 0;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  if (stream->capture != nullptr) {
    return Refuse(kIsCaptured, "the stream is captured already");
  }
  auto capture = std::make_shared<Capture>();
  capture->id = ++ids;
  capture->graph = new Graph;
  capture->graph->homes = {stream->home()};
  capture->streams = {stream};
  capture->begun_by = std::this_thread::get_id();
  capture->mode = mode;
  stream->capture = capture;
  stream->lane = 0;
  Captures().push_back(capture);
  return kFine;
}

Answer EndCapture(Stream* stream, Graph** graph) {
  std::shared_ptr<Capture> capture;
  std::unique_ptr<Graph> ended;
  {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    capture = stream->capture;
    if (capture == nullptr) return Refuse(kNotCaptured, "no capture began on this stream");
    if (capture->streams[0] != stream) {
      return RefuseInCapture(capture, kEndsElsewhere, "another stream began this capture");
    }
    for (Stream* captured : capture->streams) captured->capture = nullptr;
    ended.reset(capture->graph);
    capture->graph = nullptr;
    auto& all = Captures();
    all.erase(std::find(all.begin(), all.end(), capture));
  }
  *graph = nullptr;
  if (capture->invalid != kFine) {
    return Refuse(capture->invalid, "a call has made the capture invalid");
  }
  if (!ended->IsJoined()) {
    return Refuse(kNotJoined, "a stream that joined the capture was not joined back");
  }
  *graph = ended.release();
  return kFine;
}

bool Graph::IsJoined() const {
  for (int lane = 1; lane < static_cast<int>(homes.size()); ++lane) {
    bool is_joined = true;
    std::vector<bool> covers(static_cast<size_t>(num_records), false);
    for (const Node& node : nodes) {
      if (node.lane == lane && node.record < 0) {
        is_joined = false;
        covers.assign(covers.size(), false);
      } else if (node.lane == lane) {
        covers[static_cast<size_t>(node.record)] = true;
      } else if (node.wait >= 0 && covers[static_cast<size_t>(node.wait)]) {
        is_joined = true;
      }
    }
    if (!is_joined) return false;
  }
  return true;
}

Answer Graph::Replay(Stream* stream) {
  for (size_t lane = replaying.size() + 1; lane < homes.size(); ++lane) {
    replaying.push_back(CreateStream(homes[lane], Stream::Order::kNonBlocking));
  }
  std::vector<std::shared_ptr<Mark>> marks;
  for (int i = 0; i < num_records; ++i) marks.push_back(std::make_shared<Mark>());
  Answer answer = kFine;
  for (const Node& node : nodes) {
    if (answer != kFine) return answer;
    Stream* where = node.lane == 0 ? stream : replaying[static_cast<size_t>(node.lane - 1)];
    if (node.record >= 0) {
      const auto mark = marks[static_cast<size_t>(node.record)];
      answer = where->Enqueue([mark] { return mark->Reach(); });
    } else if (node.wait >= 0) {
      const auto mark = marks[static_cast<size_t>(node.wait)];
      answer = where->Enqueue([mark] { return mark->Wait(); }, {}, true);
    } else {
      answer = node.launch(where);
    }
  }
  return answer;
}

}  // namespace collops_sim
