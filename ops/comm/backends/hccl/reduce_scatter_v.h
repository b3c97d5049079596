#pragma once

#include "comm/backends/hccl/engine.h"
#include "comm/call.h"
#include "core/status.h"

namespace collops::hccl {

// Puts the call on its stream: HcclReduceScatterV, then zeros behind what this rank receives.
// `keep` is as with AllGatherV.
Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call, int rank, int rank_size,
                      Kept* keep);

}  // namespace collops::hccl
