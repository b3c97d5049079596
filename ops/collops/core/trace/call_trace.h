#pragma once

#include <cstdint>
#include <optional>

#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "collops/core/trace/event.h"
#include "collops/core/trace/spans.h"

namespace collops {

// Elements that a call sends and receives, and their type; kUndefined: it moves none.
struct MovedElements {
  int64_t sent = 0;
  DType dtype = DType::kUndefined;
  int64_t received = 0;
};

// What one call of a communicator is, for its line of COLLOPS_TRACE=1 and its slice in a recording.
struct TracedCall {
  const char* name;
  uint64_t line = 0;   // its number among the calls with lines; 0: it gets none
  uint64_t group = 0;  // its number among the group's calls, equal on all ranks; 0: not a group's
  uint64_t user = 0;   // the number that messages give it; 0: not known
  MovedElements moved;
};

// Measures a call, from here to End(), which writes the line.
class CallTrace {
 public:
  // Both must live as long as this object.
  CallTrace(const recording::Lane& lane, const TracedCall& call);
  void End(const Status& status);

 private:
  void Log(const Status& status) const;

  const recording::Lane& lane_;
  const TracedCall& call_;
  const int64_t begin_ns_ = recording::Now();
  std::optional<recording::CallSpan> span_;
};

}  // namespace collops
