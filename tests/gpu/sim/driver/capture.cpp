#include "driver/capture.h"

#include <algorithm>

namespace collops_sim {
namespace {

using collops::cuda::CaptureMode;

thread_local CaptureMode thread_mode = CaptureMode::kGlobal;

std::vector<std::shared_ptr<Capture>>& Captures() {
  static auto* const captures = new std::vector<std::shared_ptr<Capture>>;
  return *captures;
}

Result Invalidate(const std::shared_ptr<Capture>& capture, Result result, const std::string& text) {
  capture->is_invalid = true;
  return Refuse(result, text);
}

// A capture of a stream that work on the legacy stream would wait for; null for other streams.
std::shared_ptr<Capture> CaptureBefore(const Stream* stream) {
  if (stream->order() != Stream::Order::kLegacy) return nullptr;
  for (const auto& capture : Captures()) {
    for (const Stream* other : capture->streams) {
      const bool is_before =
          other->context() == stream->context() && other->order() == Stream::Order::kBlocking;
      if (is_before) return capture;
    }
  }
  return nullptr;
}

// Work on the legacy stream waits for all blocking streams, also for the captured ones.
Result CheckLegacy(const Stream* stream) {
  const std::shared_ptr<Capture> before = CaptureBefore(stream);
  if (before == nullptr) return Result::kSuccess;
  return Invalidate(before, Result::kStreamCaptureImplicit,
                    "the legacy stream would wait for a captured stream");
}

Result CheckValid(const Stream* stream) {
  if (!stream->capture->is_invalid) return Result::kSuccess;
  return Refuse(Result::kStreamCaptureInvalidated, "the stream's capture is invalid");
}

}  // namespace

std::mutex& CaptureMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

Result CaptureForbids(const std::string& function) {
  if (thread_mode == CaptureMode::kRelaxed) return Result::kSuccess;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  Result result = Result::kSuccess;
  for (const auto& capture : Captures()) {
    const bool own = capture->begun_by == std::this_thread::get_id();
    const bool forbids =
        own ? capture->mode != CaptureMode::kRelaxed
            : capture->mode == CaptureMode::kGlobal && thread_mode == CaptureMode::kGlobal;
    if (!forbids) continue;
    result = Invalidate(capture, Result::kStreamCaptureUnsupported,
                        function + " while a stream is captured");
  }
  return result;
}

Result RefuseInCapture(Stream* stream, const std::string& what) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  return Invalidate(stream->capture, Result::kStreamCaptureUnsupported,
                    what + " on a captured stream");
}

Result AskLegacy(const Stream* stream) {
  if (CaptureBefore(stream) == nullptr) return Result::kSuccess;
  return Refuse(Result::kStreamCaptureImplicit, "a stream that this one waits for is captured");
}

Result PutIntoGraph(Stream* stream, const Stream::Launch& launch,
                    const std::vector<const void*>& used, bool* taken) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  *taken = stream->capture != nullptr;
  if (!*taken) return CheckLegacy(stream);
  const Result result = CheckValid(stream);
  if (result == Result::kSuccess) {
    stream->capture->graph->nodes.push_back({stream->lane, launch, used});
  }
  return result;
}

Result RecordIntoGraph(Stream* stream, Event* event, bool* taken) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  *taken = stream->capture != nullptr;
  if (!*taken) return CheckLegacy(stream);
  const Result result = CheckValid(stream);
  if (result != Result::kSuccess) return result;
  Graph* const graph = stream->capture->graph;
  const int record = graph->num_records++;
  graph->nodes.push_back({stream->lane, nullptr, {}, record, -1});
  const std::lock_guard<std::mutex> event_lock(event->mutex);
  event->last = nullptr;
  event->capture = stream->capture;
  event->record = record;
  return result;
}

Result WaitInGraph(Stream* stream, Event* event, bool* taken) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  const std::lock_guard<std::mutex> event_lock(event->mutex);
  const std::shared_ptr<Capture> capture = event->capture;
  *taken = stream->capture != nullptr || capture != nullptr;
  if (!*taken) return CheckLegacy(stream);
  if (stream->capture != nullptr) {
    const Result result = CheckValid(stream);
    if (result != Result::kSuccess) return result;
  }
  if (capture == nullptr) {
    if (event->last == nullptr) return Result::kSuccess;  // never recorded: nothing to wait for
    return Invalidate(stream->capture, kCaptureIsolation,
                      "a captured stream waits for work that is not captured");
  }
  if (capture->graph == nullptr) {
    return Refuse(kCapturedEvent, "the event is part of a graph whose capture has ended");
  }
  if (stream->order() == Stream::Order::kLegacy) {
    return Invalidate(capture, Result::kStreamCaptureImplicit,
                      "the legacy stream cannot be captured");
  }
  if (stream->capture == nullptr) {
    stream->capture = capture;
    stream->lane = static_cast<int>(capture->streams.size());
    capture->streams.push_back(stream);
    capture->graph->contexts.push_back(stream->context());
  } else if (stream->capture != capture) {
    stream->capture->is_invalid = true;
    return Invalidate(capture, kMergesCaptures, "a wait would join two captures");
  }
  capture->graph->nodes.push_back({stream->lane, nullptr, {}, -1, event->record});
  return Result::kSuccess;
}

Result BeginCapture(Stream* stream, CaptureMode mode) {
  static uint64_t ids = 0;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  if (stream->order() == Stream::Order::kLegacy) {
    return Refuse(Result::kStreamCaptureUnsupported, "the legacy stream cannot be captured");
  }
  if (stream->capture != nullptr) return Refuse(Result::kInvalidValue, "it is captured already");
  auto capture = std::make_shared<Capture>();
  capture->id = ++ids;
  capture->graph = new Graph;
  capture->graph->contexts = {stream->context()};
  capture->streams = {stream};
  capture->begun_by = std::this_thread::get_id();
  capture->mode = mode;
  stream->capture = capture;
  stream->lane = 0;
  Captures().push_back(capture);
  return Result::kSuccess;
}

Result EndCapture(Stream* stream, Graph** graph) {
  std::shared_ptr<Capture> capture;
  std::unique_ptr<Graph> ended;
  {
    const std::lock_guard<std::mutex> lock(CaptureMutex());
    capture = stream->capture;
    if (capture == nullptr) return Refuse(Result::kInvalidValue, "the stream is not captured");
    if (capture->streams[0] != stream) {
      return Invalidate(capture, kCaptureUnmatched, "another stream began this capture");
    }
    const bool own = capture->begun_by == std::this_thread::get_id();
    if (!own && capture->mode != CaptureMode::kRelaxed) {
      return Refuse(kCaptureWrongThread, "another thread began this capture");
    }
    for (Stream* captured : capture->streams) captured->capture = nullptr;
    ended.reset(capture->graph);
    capture->graph = nullptr;
    auto& all = Captures();
    all.erase(std::find(all.begin(), all.end(), capture));
  }
  if (capture->is_invalid) {
    return Refuse(Result::kStreamCaptureInvalidated, "a call has made the capture invalid");
  }
  if (!ended->IsJoined()) {
    return Refuse(kCaptureUnjoined, "a stream that joined the capture was not joined back");
  }
  *graph = ended.release();
  return Result::kSuccess;
}

CaptureMode ExchangeMode(CaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

bool Graph::IsJoined() const {
  for (int lane = 1; lane < static_cast<int>(contexts.size()); ++lane) {
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

}  // namespace collops_sim
