#pragma once

#include "collops/comm/backends/cuda/engine.h"
#include "collops/comm/call.h"
#include "collops/core/status.h"

// Each function puts one call on its stream, as one kernel or three, and returns. A kernel has its
// own copy of counts and displacements, so nothing but the tensors is used later.
namespace collops::cuda_peers {

Status AllGatherV(Engine* engine, const AllGatherVCall& call);

// The kernel reads each slice once and adds in rank order.
Status ReduceScatterV(Engine* engine, const ReduceScatterVCall& call);

// What fits into a cell goes to every rank, and each adds all; longer x: ReduceScatterV and
// AllGatherV of even parts.
Status AllReduce(Engine* engine, const AllReduceCall& call);

Status ExchangeV(Engine* engine, const ExchangeVCall& call);

Status Barrier(Engine* engine, const Agreement& agreement, cuda::Stream stream);

}  // namespace collops::cuda_peers
