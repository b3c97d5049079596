#pragma once

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/call.h"

namespace collops::shm {

// Every rank reads the slices that its peers have for it: small ones from its cell of their call
// records, long ones from their windows or stages.
Status ExchangeV(Exchange* exchange, const ExchangeVCall& call);

}  // namespace collops::shm
