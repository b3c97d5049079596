#include "collops/comm/streams/calls_on_streams.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace collops {
namespace {

using Clock = std::chrono::steady_clock;

struct NamedCall {
  KeepAlive kept;
  const char* name;
  uint64_t number;
  Clock::time_point begin;
};

}  // namespace

Status CallsOnStreams::Keep(kernels::DeviceRuntime::Stream stream, KeepAlive kept, const char* name,
                            uint64_t number) {
  const Status status = in_flight_.Keep(
      stream, std::make_shared<NamedCall>(NamedCall{std::move(kept), name, number, Clock::now()}));
  NoteOldest();
  return status;
}

void CallsOnStreams::NoteOldest() {
  Clock::rep oldest = 0;
  in_flight_.VisitOldest([&](const void* kept) {
    const Clock::rep begin = static_cast<const NamedCall*>(kept)->begin.time_since_epoch().count();
    oldest = oldest == 0 ? begin : std::min(oldest, begin);
  });
  oldest_ = oldest;
}

std::string CallsOnStreams::NamesAhead() {
  static_cast<void>(in_flight_.Reap());
  NoteOldest();
  std::string names;
  in_flight_.VisitOldest([&](const void* kept) {
    const auto& call = *static_cast<const NamedCall*>(kept);
    names += Concat(names.empty() ? "" : " or ", call.name);
    if (call.number > 0) names += Concat(" (call ", call.number, ")");
  });
  return names;
}

double CallsOnStreams::KnownAge() const {
  const int64_t oldest = oldest_;
  if (oldest == 0) return 0;
  const Clock::duration age = Clock::now().time_since_epoch() - Clock::duration(oldest);
  return std::chrono::duration<double>(age).count();
}

bool CallsOnStreams::IsIdle() {
  const bool idle = in_flight_.Reap() != kernels::DeviceRuntime::Progress::kAhead;
  NoteOldest();
  return idle;
}

Status CallsOnStreams::Drain(const Deadline& deadline) {
  const Status status = in_flight_.Drain(deadline);
  NoteOldest();
  return status;
}

}  // namespace collops
