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
    case CallKind::kAllGather:
      return "AllGather";
    case CallKind::kReduceScatter:
      return "ReduceScatter";
    case CallKind::kAllReduce:
      return "AllReduce";
    case CallKind::kBroadcast:
      return "Broadcast";
    case CallKind::kRootInfo:
      return "first contact";
    case CallKind::kLinearParallel:
      return "LinearParallel";
  }
  return "unknown call";
}

bool Reduces(CallKind kind) {
  return kind == CallKind::kReduceScatterV || kind == CallKind::kReduceScatter ||
         kind == CallKind::kAllReduce;
}

}  // namespace collops
