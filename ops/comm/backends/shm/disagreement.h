#pragma once

#include <cstdint>

#include "comm/backends/shm/endpoint.h"
#include "comm/call.h"
#include "comm/fused_call.h"
#include "core/status.h"

namespace collops::shm {

// What the ranks must agree on before anything moves.
struct CallInfo {
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  int32_t root = 0;
  Shape x_shape;                    // left empty where the ranks' shapes may differ
  const int64_t* counts = nullptr;  // rank_size, or null
  const int64_t* displs = nullptr;  // rank_size, or null
  CallLabel label;
  const FusedCallSpec* fused = nullptr;  // of a fused call
};

// A number that differs, but for accidents, when anything in `info` does.
uint64_t Signature(const CallInfo& info, int rank_size);

// The first field in which `rank` announced something else than `info`, with both values.
Status DescribeDisagreement(const Endpoint& endpoint, const CallInfo& info, uint64_t sequence,
                            int rank);

}  // namespace collops::shm
