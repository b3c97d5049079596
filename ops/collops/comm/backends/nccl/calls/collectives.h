#pragma once

#include <cstdint>

#include "collops/comm/backends/nccl/engine.h"
#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/streams/stream_counts.h"
#include "collops/core/status.h"

// Each function puts one call on its stream and returns. NCCL reads counts in the call itself, so
// nothing but the tensors is used later.
namespace collops::nccl {

// ncclAllGather for equal packed blocks; else a group of broadcasts, one per rank with elements,
// which NCCL fuses into one kernel from 2.29.2 on. Then zeros for the gaps.
Status AllGatherV(const Engine& engine, const AllGatherVCall& call);

// Integers that NCCL adds as SPEC wants, in equal packed slices, by ncclReduceScatter. All else:
// each slice goes to its rank by a group of sends and receives, and a kernel of ours reduces there
// in rank order, in as many rounds as the scratch memory needs. Then zeros for the rest of the
// output.
Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call);

// ncclAllReduce where NCCL adds as SPEC wants, else ReduceScatterV and AllGatherV of even parts.
Status AllReduce(const Engine& engine, const AllReduceCall& call);

Status Broadcast(const Engine& engine, const BroadcastCall& call);

// A group of sends and receives, and then zeros for the gaps.
Status ExchangeV(const Engine& engine, const ExchangeVCall& call);

// A group of sends and receives in the order of the list; copies for what goes to this rank itself.
Status Messages(const Engine& engine, const Transfer* list, int count, Stream stream);

Status Barrier(const Engine& engine, Stream stream);

// Where a rank of the group puts the peers' slices until they are reduced: rows of `stride` bytes,
// one per peer. A slice that is longer than a row is reduced in rounds.
struct Staging {
  int64_t row_count = 0;  // elements of a row
  int64_t stride = 0;     // bytes
  int peers = 0;
  int64_t bytes() const { return stride * peers; }
};
// For this rank's slice of `count` elements.
Staging StagingOf(DType dtype, int64_t count, int rank_size);

// NCCL's numbers of a reduction that gives SPEC's bits in any order; false if it has none.
bool FindExact(DType dtype, ReduceOp op, DataType* type, Reduction* reduction);

}  // namespace collops::nccl
