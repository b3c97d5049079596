#pragma once

#include "comm/backends/hccl/engine.h"
#include "comm/call.h"
#include "core/status.h"

namespace collops::hccl {

// Puts HcclReduceScatterV on the call's stream, and then zeros for the rest of the output. `keep`
// as in AllGatherV.
Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call, int rank, int rank_size,
                      KeepAlive* keep);

}  // namespace collops::hccl
