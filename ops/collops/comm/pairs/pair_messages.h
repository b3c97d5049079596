#pragma once

#include <string>

#include "collops/comm/pairs/pair_wire.h"
#include "collops/comm/pairs/transfer_table.h"

namespace collops {

// The texts of errors between two ranks; both ranks get the same text.

// "Send" or "Recv"; "send" or "recv" at the plain level, whatever the method is.
const char* WordOf(const Transfer& transfer);
// The call that asks for it: the plain level's method, or "Send" or "Recv".
const char* CallOf(const Transfer& transfer);

// The first field in which sender and receiver of a message differ: both ranks, both values.
std::string DescribeMismatch(const PairGroup& group, int sender, int receiver,
                             const Envelope& envelope, const Transfer& receive);

// `refuser` takes part in the message with a refusal; for the other rank, whose `transfer` it is.
// The tag is the message's.
Status RefusedBy(const PairGroup& group, const Transfer& transfer, int refuser, uint64_t number,
                 int32_t tag, const std::string& reason);

// Describes a transfer that has not ended, for the message of a time-out.
std::string DescribeOpen(const PairGroup& group, const OpenTransfer& open);

}  // namespace collops
