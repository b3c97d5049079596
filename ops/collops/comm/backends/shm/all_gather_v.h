#pragma once

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/call.h"

namespace collops::shm {

// Every rank reads its peers' blocks in place: in call records, stages or windows.
Status AllGatherV(Exchange* exchange, const AllGatherVCall& call);

}  // namespace collops::shm
