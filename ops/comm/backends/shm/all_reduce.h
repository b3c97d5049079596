#pragma once

#include "comm/backends/shm/exchange.h"
#include "comm/call.h"

namespace collops::shm {

// Whether the vectors are so short that every rank reduces all of them: one step with more to read
// beats a ReduceScatterV and an AllGatherV, which wait for the peers twice. Equal on every rank.
bool ReducesInOneStep(const AllReduceCall& call, int rank_size);

// Such a call.
Status AllReduceInOneStep(Exchange* exchange, const AllReduceCall& call);

}  // namespace collops::shm
