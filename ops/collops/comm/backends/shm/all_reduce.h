#pragma once

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/call.h"
#include "collops/core/tuning.h"

namespace collops::shm {

// Whether the vectors are so short that every rank reduces all of them: one step with more to read
// beats a ReduceScatterV and an AllGatherV, which wait for the peers twice. Equal on every rank,
// because first contact has compared the tables.
bool ReducesInOneStep(const AllReduceCall& call, int rank_size, const Tuning& tuning);

// Such a call.
Status AllReduceInOneStep(Exchange* exchange, const AllReduceCall& call);

}  // namespace collops::shm
