#pragma once

#include <memory>

#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/backends/ucx/scratch.h"
#include "collops/comm/call.h"

namespace collops::ucx {

// The data of a call on several hosts, on which the ranks have agreed in the current step. All
// bytes between hosts go through UCX; a host's ranks share them over shared memory.

// A block crosses once per destination host, cut over the ranks there. Attach...(): before the
// agreement, a small part of this rank's input goes with its head.
void AttachAllGatherV(Link* link, const AllGatherVCall& call);
Status AllGatherV(Link* link, const AllGatherVCall& call);

// One ReduceScatterV, in rank order. Every rank of another host sends its slice or, where that
// moves fewer bytes, the hosts pass on a running sum (reduction/).
class SliceReduction {
 public:
  virtual ~SliceReduction() = default;

  // Before the step begins: the memory that the call needs. Local; after an error the call can
  // still be refused.
  virtual Status Prepare() = 0;
  // Before the agreement.
  virtual void Attach() {}
  virtual Status Run() = 0;
};
// `call` and `scratch` must outlive it: UCX may have addresses of both.
std::unique_ptr<SliceReduction> MakeReduction(Link* link, const ReduceScatterVCall& call,
                                              Scratch* scratch);

Status ExchangeV(Link* link, const ExchangeVCall& call);

}  // namespace collops::ucx
