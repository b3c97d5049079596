#pragma once

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/call.h"

namespace collops::shm {

// Every rank reads its slice of all inputs in place and reduces them in rank order.
Status ReduceScatterV(Exchange* exchange, const ReduceScatterVCall& call);

}  // namespace collops::shm
