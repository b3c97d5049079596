#include "collops/comm/streams/in_flight.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "collops/core/process/per_process.h"

namespace collops {
namespace {

using Progress = DeviceRuntime::Progress;

// What a graph keeps alive of a call. The second pointer counts the graphs that exist.
struct Captured {
  std::shared_ptr<const void> kept;
  std::shared_ptr<const void> graph_lives;
};

// Kept until the process ends, because work that uses it may still run.
struct Held {
  std::mutex mutex;
  std::vector<std::shared_ptr<const void>> list;
};
PerProcess<Held> held_here;

void HoldForEver(std::shared_ptr<const void> kept) {
  if (kept == nullptr) return;
  Held& held = held_here.Get();
  const std::lock_guard<std::mutex> lock(held.mutex);
  held.list.push_back(std::move(kept));
}

}  // namespace

InFlight::InFlight(DeviceRuntime* runtime)
    : runtime_(runtime), captured_(std::make_shared<const char>()) {}

InFlight::~InFlight() {
  for (Line& line : lines_) {
    for (Work& work : line.works) HoldForEver(std::move(work.kept));
  }
}

Status InFlight::Keep(DeviceRuntime::Stream stream, std::shared_ptr<const void> kept) {
  DeviceRuntime::Graph graph = nullptr;
  Status status = runtime_->FindGraph(stream, &graph);
  if (status.ok() && graph != nullptr) {
    auto captured = std::make_shared<const Captured>(Captured{std::move(kept), captured_});
    runtime_->KeepWithGraph(graph, std::move(captured));
    return Ok();
  }
  DeviceRuntime::Event event = nullptr;
  if (status.ok()) {
    static_cast<void>(Reap());
    status = Mark(stream, &event);
  }
  if (!status.ok()) {
    unmarked_ = true;
    HoldForEver(std::move(kept));
    return status;
  }
  FindLine(stream)->works.push_back({event, std::move(kept)});
  return Ok();
}

// An event that is no longer used, or a new one.
Status InFlight::Mark(DeviceRuntime::Stream stream, DeviceRuntime::Event* event) {
  if (free_events_.empty()) {
    COLLOPS_RETURN_IF_ERROR(runtime_->CreateEvent(event));
  } else {
    *event = free_events_.back();
    free_events_.pop_back();
  }
  const Status status = runtime_->RecordEvent(*event, stream);
  if (!status.ok()) runtime_->DestroyEvent(*event);
  return status;
}

Status InFlight::FindCapture(DeviceRuntime::Stream stream, bool* is_captured) const {
  DeviceRuntime::Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(runtime_->FindGraph(stream, &graph));
  *is_captured = graph != nullptr;
  return Ok();
}

InFlight::Line* InFlight::FindLine(DeviceRuntime::Stream stream) {
  const auto line = std::find_if(lines_.begin(), lines_.end(),
                                 [&](const Line& known) { return known.stream == stream; });
  if (line != lines_.end()) return &*line;
  lines_.push_back({stream, {}});
  return &lines_.back();
}

Progress InFlight::Reap() {
  Progress rest = Progress::kReached;
  for (Line& line : lines_) {
    while (!line.works.empty()) {
      const Progress progress = runtime_->QueryEvent(line.works.front().event);
      if (progress != Progress::kReached) {
        if (rest != Progress::kUnknown) rest = progress;
        break;
      }
      free_events_.push_back(line.works.front().event);
      line.works.pop_front();
    }
  }
  const auto is_done = [](const Line& line) { return line.works.empty(); };
  lines_.erase(std::remove_if(lines_.begin(), lines_.end(), is_done), lines_.end());
  return rest;
}

Status InFlight::WaitForAll(const Deadline& deadline) {
  for (Progress rest = Reap(); rest != Progress::kReached; rest = Reap()) {
    COLLOPS_CHECK_ARG(rest != Progress::kUnknown, ERROR_RT_FAIL,
                      "the runtime does not report whether a stream has reached its event");
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "work on ", lines_.size(),
                      " streams did not end within ", deadline.timeout_s(), " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  COLLOPS_CHECK_ARG(!unmarked_, ERROR_RT_FAIL, "a call has no event, so its end is not known");
  COLLOPS_CHECK_ARG(!has_graphs(), ERROR_RT_FAIL, "a captured graph can still be replayed");
  return Ok();
}

Status InFlight::Drain(const Deadline& deadline) {
  Status status = WaitForAll(deadline);
  for (const DeviceRuntime::Event event : free_events_) runtime_->DestroyEvent(event);
  free_events_.clear();
  for (Line& line : lines_) {
    for (Work& work : line.works) HoldForEver(std::move(work.kept));
  }
  unmarked_ = unmarked_ || !lines_.empty();
  lines_.clear();
  return status;
}

}  // namespace collops
