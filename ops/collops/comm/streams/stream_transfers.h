#pragma once

#include "collops/comm/pairs/transfer.h"
#include "collops/core/status.h"

namespace collops {

// What this rank would be refused and its peers would not hear of, in messages that are put on a
// stream: a tag, any source, a message to itself that nothing receives. `library`: for the message.
Status CheckStreamTransfers(const char* name, const char* library, const Transfer* list, int count,
                            int rank);

}  // namespace collops
