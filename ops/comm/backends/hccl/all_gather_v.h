#pragma once

#include <cstdint>
#include <vector>

#include "comm/backends/hccl/engine.h"
#include "comm/call.h"
#include "core/status.h"

namespace collops::hccl {

// Puts the call on its stream: HcclAllGatherV, then zeros where no block lies. `scaled` is room for
// the counts of a type that travels as bytes.
Status AllGatherV(const Engine& engine, const AllGatherVCall& call, int rank, int rank_size,
                  std::vector<uint64_t>* scaled);

}  // namespace collops::hccl
