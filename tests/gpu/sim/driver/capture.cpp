#include "driver/capture.h"

#include <utility>

namespace collops_sim {
namespace {

using collops::cuda::CaptureMode;

constexpr auto kGlobal = static_cast<CaptureMode>(0);

thread_local CaptureMode thread_mode = kGlobal;

CaptureMode ModeOf(const Capture& capture) {
  return static_cast<CaptureMode>(capture.mode);
}

// A capture of a stream that work on the legacy stream would wait for; null for other streams.
std::shared_ptr<Capture> CaptureBefore(const Stream* stream) {
  if (stream->order() != Stream::Order::kLegacy) return nullptr;
  for (const auto& capture : Captures()) {
    for (const Stream* other : capture->streams) {
      const bool is_before =
          other->home() == stream->home() && other->order() == Stream::Order::kBlocking;
      if (is_before) return capture;
    }
  }
  return nullptr;
}

}  // namespace

Result RefuseInCapture(const std::shared_ptr<Capture>& capture, Result result,
                       const std::string& text) {
  capture->invalid = kCaptureInvalidated;
  return Refuse(result, text);
}

// Work on the legacy stream waits for all blocking streams, also for the captured ones.
Result CheckUncaptured(const Stream* stream) {
  const std::shared_ptr<Capture> before = CaptureBefore(stream);
  if (before == nullptr) return Result::kSuccess;
  return RefuseInCapture(before, Result::kStreamCaptureImplicit,
                         "the legacy stream would wait for a captured stream");
}

Result CheckJoining(const std::shared_ptr<Capture>& capture, const Stream* stream) {
  if (stream->order() != Stream::Order::kLegacy) return Result::kSuccess;
  return RefuseInCapture(capture, Result::kStreamCaptureImplicit,
                         "the legacy stream cannot be captured");
}

Result CaptureForbids(const std::string& function) {
  if (thread_mode == CaptureMode::kRelaxed) return Result::kSuccess;
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  Result result = Result::kSuccess;
  for (const auto& capture : Captures()) {
    const CaptureMode mode = ModeOf(*capture);
    const bool own = capture->begun_by == std::this_thread::get_id();
    const bool forbids =
        own ? mode != CaptureMode::kRelaxed : mode == kGlobal && thread_mode == kGlobal;
    if (!forbids) continue;
    result =
        RefuseInCapture(capture, kCaptureUnsupported, function + " while a stream is captured");
  }
  return result;
}

Result RefuseInCapture(Stream* stream, const std::string& what) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  return RefuseInCapture(stream->capture, kCaptureUnsupported, what + " on a captured stream");
}

Result AskLegacy(const Stream* stream) {
  if (CaptureBefore(stream) == nullptr) return Result::kSuccess;
  return Refuse(Result::kStreamCaptureImplicit, "a stream that this one waits for is captured");
}

Result MayEndHere(const Stream* stream) {
  const std::lock_guard<std::mutex> lock(CaptureMutex());
  const std::shared_ptr<Capture>& capture = stream->capture;
  if (capture == nullptr || capture->streams[0] != stream) return Result::kSuccess;
  const bool own = capture->begun_by == std::this_thread::get_id();
  if (own || ModeOf(*capture) == CaptureMode::kRelaxed) return Result::kSuccess;
  return Refuse(kCaptureWrongThread, "another thread began this capture");
}

CaptureMode ExchangeMode(CaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

}  // namespace collops_sim
