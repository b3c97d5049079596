#pragma once

#include "comm/backends/shm/exchange.h"
#include "comm/call.h"

namespace collops::shm {

// Whether the call is so small that every rank reduces all of it: one step with more to read beats
// a ReduceScatterV and an AllGatherV, which wait for the peers twice. Equal on every rank.
bool ReducesAtOnce(const AllReduceCall& call, int rank_size);

// Such a call.
Status AllReduceAtOnce(Exchange* exchange, const AllReduceCall& call);

}  // namespace collops::shm
