#include "comm/call.h"

namespace collops {

const char* Name(CallKind kind) {
  switch (kind) {
    case CallKind::kBarrier:
      return "Barrier";
    case CallKind::kAllGatherV:
      return "AllGatherV";
    case CallKind::kReduceScatterV:
      return "ReduceScatterV";
    case CallKind::kSizeExchange:
      return "AllGatherV without sizes";
    case CallKind::kSplit:
      return "Split";
  }
  return "unknown call";
}

}  // namespace collops
