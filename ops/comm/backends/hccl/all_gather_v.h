#pragma once

#include "comm/backends/hccl/engine.h"
#include "comm/call.h"
#include "core/status.h"

namespace collops::hccl {

// Puts HcclAllGatherV on the call's stream, and then zeros for the gaps. `keep` is the call's
// `keep` on entry; on return, also after an error, it holds all that the stream still reads.
Status AllGatherV(const Engine& engine, const AllGatherVCall& call, int rank, int rank_size,
                  KeepAlive* keep);

}  // namespace collops::hccl
