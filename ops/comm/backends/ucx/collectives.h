#pragma once

#include "comm/backends/ucx/link.h"
#include "comm/call.h"

namespace collops::ucx {

// The data of a call on several hosts, on which the ranks have agreed in the current step. All
// bytes between hosts go through UCX; a host's ranks share them over shared memory.

// A block crosses once per destination host, cut over the ranks there. Attach...(): before the
// agreement, a small part of this rank's input goes with its head.
void AttachAllGatherV(Link* link, const AllGatherVCall& call);
Status AllGatherV(Link* link, const AllGatherVCall& call);

// The reduction is in rank order. Every rank of another host sends its slice or, where that moves
// fewer bytes, the hosts pass on a running sum (reduction/). `scratch` is kept between calls.
void AttachReduceScatterV(Link* link, const ReduceScatterVCall& call);
Status ReduceScatterV(Link* link, const ReduceScatterVCall& call, std::vector<std::byte>* scratch);

Status ExchangeV(Link* link, const ExchangeVCall& call);

}  // namespace collops::ucx
