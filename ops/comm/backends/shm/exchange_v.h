#pragma once

#include "comm/backends/shm/exchange.h"
#include "comm/call.h"

namespace collops::shm {

// Every rank reads its peers' slices for it: small ones from their records, each in the cell of its
// reader, long ones from windows or stages.
Status ExchangeV(Exchange* exchange, const ExchangeVCall& call);

}  // namespace collops::shm
