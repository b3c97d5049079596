#include <utility>

#include "stream.h"

namespace collops_sim {
namespace {

std::shared_ptr<Mark> LastMark(Event* event) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  return event->last;
}

int WaitForMark(const std::shared_ptr<Mark>& mark) {
  if (mark == nullptr) return 0;
  std::unique_lock<std::mutex> lock(mark->mutex);
  mark->reached.wait(lock, [&] { return mark->done; });
  return 0;
}

int Reach(const std::shared_ptr<Mark>& mark) {
  const std::lock_guard<std::mutex> lock(mark->mutex);
  mark->done = true;
  mark->reached.notify_all();
  return 0;
}

}  // namespace

void Record(Event* event, Stream* stream) {
  if (stream->RecordIntoGraph(event)) return;
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard<std::mutex> lock(event->mutex);
    event->last = mark;
    event->capture = nullptr;
  }
  stream->Enqueue([mark] { return Reach(mark); });
}

int WaitOn(Event* event, Stream* stream) {
  std::shared_ptr<Capture> capture;
  int record = 0;
  {
    const std::lock_guard<std::mutex> lock(event->mutex);
    capture = event->capture;
    record = event->record;
  }
  if (capture != nullptr) return stream->WaitInGraph(capture, record);
  constexpr int kDependency = 107024;  // ACL_ERROR_RT_CAPTURE_DEPENDENCY
  if (stream->graph() != nullptr) return kDependency;
  stream->Enqueue([mark = LastMark(event)] { return WaitForMark(mark); });
  return 0;
}

bool Reached(Event* event) {
  const std::shared_ptr<Mark> mark = LastMark(event);
  if (mark == nullptr) return true;
  const std::lock_guard<std::mutex> lock(mark->mutex);
  return mark->done;
}

void WaitFor(Event* event) {
  WaitForMark(LastMark(event));
}

bool IsCaptured(Event* event) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  return event->capture != nullptr;
}

void Graph::Replay(Stream* stream) {
  while (replaying.size() + 1 < captured.size())
    replaying.push_back(CreateStream(stream->device()));
  std::vector<std::shared_ptr<Mark>> marks;
  for (int i = 0; i < num_records; ++i) marks.push_back(std::make_shared<Mark>());
  for (const Node& node : nodes) {
    Stream* where = node.lane == 0 ? stream : replaying[static_cast<size_t>(node.lane - 1)];
    if (node.record >= 0) {
      where->Enqueue([mark = marks[static_cast<size_t>(node.record)]] { return Reach(mark); });
    } else if (node.wait >= 0) {
      where->Enqueue([mark = marks[static_cast<size_t>(node.wait)]] { return WaitForMark(mark); });
    } else {
      node.launch(where);
    }
  }
}

bool Graph::IsJoined() const {
  for (int lane = 1; lane < static_cast<int>(captured.size()); ++lane) {
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

bool Stream::RecordIntoGraph(Event* event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (capture_ == nullptr) return false;
  const int record = capture_->graph->num_records++;
  capture_->graph->nodes.push_back({lane_, nullptr, record, -1});
  const std::lock_guard<std::mutex> event_lock(event->mutex);
  event->last = nullptr;
  event->capture = capture_;
  event->record = record;
  return true;
}

int Stream::WaitInGraph(const std::shared_ptr<Capture>& capture, int record) {
  constexpr int kEventCaptured = 107028;  // ACL_ERROR_RT_EVENT_CAPTURED
  constexpr int kConflict = 107032;       // ACL_ERROR_STREAM_CAPTURE_CONFLICT
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::lock_guard<std::mutex> capture_lock(capture->mutex);
  if (capture->graph == nullptr) return kEventCaptured;
  if (capture_ != nullptr && capture_ != capture) return kConflict;
  if (capture_ == nullptr) {
    capture_ = capture;
    lane_ = static_cast<int>(capture->graph->captured.size());
    capture->graph->captured.push_back(this);
  }
  capture->graph->nodes.push_back({lane_, nullptr, -1, record});
  return 0;
}

int Stream::BeginCapture(Graph* graph) {
  constexpr int kCaptured = 107027;  // ACL_ERROR_RT_STREAM_CAPTURED
  const std::lock_guard<std::mutex> lock(mutex_);
  if (capture_ != nullptr) return kCaptured;
  capture_ = graph->capture = std::make_shared<Capture>();
  capture_->graph = graph;
  lane_ = 0;
  graph->captured = {this};
  return 0;
}

int Stream::EndCapture(Graph** graph) {
  constexpr int kNotCaptured = 107029;  // ACL_ERROR_RT_STREAM_NOT_CAPTURED
  constexpr int kUnmatched = 107036;    // ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED
  constexpr int kUnjoined = 107025;     // ACL_ERROR_RT_STREAM_UNJOINED
  Graph* ended = this->graph();
  if (ended == nullptr) return kNotCaptured;
  if (ended->captured[0] != this) return kUnmatched;
  for (Stream* stream : ended->captured) {
    const std::lock_guard<std::mutex> lock(stream->mutex_);
    stream->capture_ = nullptr;
  }
  {
    const std::lock_guard<std::mutex> lock(ended->capture->mutex);
    ended->capture->graph = nullptr;
  }
  *graph = ended;
  return ended->IsJoined() ? 0 : kUnjoined;
}

Graph* Stream::graph() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return capture_ == nullptr ? nullptr : capture_->graph;
}

}  // namespace collops_sim
