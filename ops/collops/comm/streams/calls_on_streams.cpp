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
  return in_flight_.Keep(
      stream, std::make_shared<NamedCall>(NamedCall{std::move(kept), name, number, Clock::now()}));
}

std::string CallsOnStreams::NamesAhead() {
  static_cast<void>(in_flight_.Reap());
  std::string names;
  for (const auto& kept : in_flight_.OldestAhead()) {
    const auto& call = *static_cast<const NamedCall*>(kept.get());
    names += Concat(names.empty() ? "" : " or ", call.name);
    if (call.number > 0) names += Concat(" (call ", call.number, ")");
  }
  return names;
}

double CallsOnStreams::OldestAge() {
  static_cast<void>(in_flight_.Reap());
  double oldest_s = 0;
  for (const auto& kept : in_flight_.OldestAhead()) {
    const auto& call = *static_cast<const NamedCall*>(kept.get());
    oldest_s = std::max(oldest_s, std::chrono::duration<double>(Clock::now() - call.begin).count());
  }
  return oldest_s;
}

}  // namespace collops
