#include "collops/core/trace/call_trace.h"

#include <string>

#include "collops/core/trace/log.h"

namespace collops {
namespace {

std::string Describe(const recording::Lane& lane, const TracedCall& call) {
  std::string args = Concat("\"backend\":\"", lane.backend, "\",\"rank\":", lane.rank,
                            ",\"ranks\":", lane.rank_size);
  if (call.group > 0) args += Concat(",\"seq\":", call.group);
  if (call.user > 0) args += Concat(",\"call\":", call.user);
  const MovedElements& moved = call.moved;
  if (moved.dtype != DType::kUndefined) {
    args += Concat(",\"sent_bytes\":", moved.sent * SizeOf(moved.dtype),
                   ",\"received_bytes\":", moved.received * SizeOf(moved.dtype), ",\"dtype\":\"",
                   Name(moved.dtype), "\"");
  }
  return args;
}

}  // namespace

CallTrace::CallTrace(const recording::Lane& lane, const TracedCall& call)
    : lane_(lane), call_(call) {
  if (!recording::On()) return;
  span_.emplace(lane, call.name);
  span_->args = Describe(lane, call);
}

void CallTrace::End(const Status& status) {
  if (span_) {
    if (!status.ok()) span_->args += Concat(",\"error\":\"", ErrorName(status.code()), "\"");
    span_.reset();
    if (!status.ok()) recording::Flush();
  }
  if (call_.line > 0) Log(status);
}

void CallTrace::Log(const Status& status) const {
  const double took_ms = static_cast<double>(recording::Now() - begin_ns_) * 1e-6;
  const uint64_t number = call_.user > 0 ? call_.user : call_.group;
  const std::string numbered = number > 0 ? Concat(" call=", number) : "";
  const MovedElements& moved = call_.moved;
  const std::string sizes =
      moved.dtype == DType::kUndefined
          ? ""
          : Concat(" send=", moved.sent, " ", Name(moved.dtype), " recv=", moved.received);
  collops::Log(LogLevel::kInfo,
               Concat("r", lane_.rank, "/", lane_.rank_size, " ",
                      lane_.comm_domain.empty() ? "-" : lane_.comm_domain, " ", lane_.backend, " ",
                      call_.name, numbered, sizes, " ", took_ms, " ms",
                      status.ok() ? "" : Concat(" ", ErrorName(status.code()))));
}

}  // namespace collops
