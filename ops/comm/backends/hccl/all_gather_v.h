#pragma once

#include "comm/backends/hccl/engine.h"
#include "comm/call.h"
#include "core/status.h"

namespace collops::hccl {

// Puts the call on its stream: HcclAllGatherV, then zeros where no block lies. `keep` is the call's
// own at first; afterwards it holds whatever the stream still reads, also after an error.
Status AllGatherV(const Engine& engine, const AllGatherVCall& call, int rank, int rank_size,
                  Kept* keep);

}  // namespace collops::hccl
