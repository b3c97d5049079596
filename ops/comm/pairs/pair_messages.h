#pragma once

#include <string>

#include "comm/pairs/pair_wire.h"
#include "comm/pairs/transfer_table.h"

namespace collops {

// The texts of what can go wrong between two ranks; in each case the same on both.

// "Send" or "Recv".
const char* NameOf(Transfer::Way way);

// What sender and receiver of a message disagree in: both ranks, the field, both values.
std::string DescribeMismatch(const PairGroup& group, int sender, int receiver,
                             const Envelope& envelope, const Transfer& receive);

// `refuser` takes part in the message with a refusal; seen by the other one, whose way is `way`.
Status RefusedBy(const PairGroup& group, Transfer::Way way, int refuser, uint64_t number,
                 int32_t tag, const std::string& reason);

// A transfer that has not ended, for the text of a time-out.
std::string DescribeOpen(const PairGroup& group, const OpenTransfer& open);

}  // namespace collops
