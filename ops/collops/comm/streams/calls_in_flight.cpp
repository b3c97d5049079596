// CallsInFlight, and what a call's counts say.
#include "collops/comm/streams/stream_communicator.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "collops/core/process/per_process.h"

namespace collops {

bool AreEven(const int64_t* counts, const int64_t* displs, int rank_size) {
  for (int r = 0; r < rank_size; ++r) {
    if (counts[r] != counts[0] || displs[r] != r * counts[0]) return false;
  }
  return true;
}

bool AreZero(const int64_t* counts, int rank_size) {
  return std::all_of(counts, counts + rank_size, [](int64_t count) { return count == 0; });
}

bool HasOneOwner(const int64_t* counts, int rank_size) {
  return std::count(counts, counts + rank_size, 0) == rank_size - 1;
}

namespace {

using Progress = DeviceRuntime::Progress;

// What a graph keeps alive of a call. The second pointer counts the graphs that exist.
struct Captured {
  KeepAlive kept;
  KeepAlive graph_lives;
};

// Kept until the process ends, because work that uses it may still run.
struct Held {
  std::mutex mutex;
  std::vector<KeepAlive> list;
};
PerProcess<Held> held_here;

void HoldForEver(KeepAlive kept) {
  if (kept == nullptr) return;
  Held& held = held_here.Get();
  const std::lock_guard<std::mutex> lock(held.mutex);
  held.list.push_back(std::move(kept));
}

}  // namespace

CallsInFlight::~CallsInFlight() {
  for (Line& line : lines_) {
    for (Work& work : line.works) HoldForEver(std::move(work.kept));
  }
}

Status CallsInFlight::Keep(DeviceRuntime::Stream stream, KeepAlive kept, const char* name,
                           uint64_t number) {
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
  auto line = std::find_if(lines_.begin(), lines_.end(),
                           [&](const Line& known) { return known.stream == stream; });
  if (line == lines_.end()) line = lines_.insert(line, {stream, {}});
  line->works.push_back({event, std::move(kept), name, number, Clock::now()});
  NoteOldest();
  return Ok();
}

// An event that is no longer used, or a new one.
Status CallsInFlight::Mark(DeviceRuntime::Stream stream, DeviceRuntime::Event* event) {
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

Status CallsInFlight::FindCapture(DeviceRuntime::Stream stream, bool* is_captured) const {
  DeviceRuntime::Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(runtime_->FindGraph(stream, &graph));
  *is_captured = graph != nullptr;
  return Ok();
}

Progress CallsInFlight::Reap() {
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
  NoteOldest();
  return rest;
}

void CallsInFlight::NoteOldest() {
  Clock::rep oldest = 0;
  for (const Line& line : lines_) {
    const Clock::rep begin = line.works.front().begin.time_since_epoch().count();
    oldest = oldest == 0 ? begin : std::min(oldest, begin);
  }
  oldest_ = oldest;
}

std::string CallsInFlight::NamesAhead() {
  static_cast<void>(Reap());
  std::string names;
  for (const Line& line : lines_) {
    const Work& work = line.works.front();
    names += Concat(names.empty() ? "" : " or ", work.name);
    if (work.number > 0) names += Concat(" (call ", work.number, ")");
  }
  return names;
}

double CallsInFlight::KnownAge() const {
  const Clock::rep oldest = oldest_;
  if (oldest == 0) return 0;
  const Clock::duration age = Clock::now().time_since_epoch() - Clock::duration(oldest);
  return std::chrono::duration<double>(age).count();
}

Status CallsInFlight::WaitForAll(const Deadline& deadline) {
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

Status CallsInFlight::Drain(const Deadline& deadline) {
  Status status = WaitForAll(deadline);
  for (const DeviceRuntime::Event event : free_events_) runtime_->DestroyEvent(event);
  free_events_.clear();
  for (Line& line : lines_) {
    for (Work& work : line.works) HoldForEver(std::move(work.kept));
  }
  unmarked_ = unmarked_ || !lines_.empty();
  lines_.clear();
  NoteOldest();
  return status;
}

}  // namespace collops
