#pragma once

#include <string>

#include "collops/comm/pairs/pair_wire.h"
#include "collops/comm/pairs/transfer_table.h"

namespace collops {

// The texts of errors between two ranks; both ranks get the same text.

// "Send" or "Recv".
const char* NameOf(Transfer::Way way);

// The first field in which sender and receiver of a message differ: both ranks, both values.
std::string DescribeMismatch(const PairGroup& group, int sender, int receiver,
                             const Envelope& envelope, const Transfer& receive);

// `refuser` takes part in the message with a refusal; for the other rank, whose way is `way`.
Status RefusedBy(const PairGroup& group, Transfer::Way way, int refuser, uint64_t number,
                 int32_t tag, const std::string& reason);

// Describes a transfer that has not ended, for the message of a time-out.
std::string DescribeOpen(const PairGroup& group, const OpenTransfer& open);

}  // namespace collops
