#pragma once

#include "collops/comm/backends/hccl/engine.h"
#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/core/status.h"

// Each function puts one call on its stream and returns. `keep` is the call's `keep` on entry; on
// return, also after an error, it holds all that the stream still reads.
namespace collops::hccl {

// HcclAllGather for equal packed blocks, else HcclAllGatherV; without that a broadcast per rank.
// Then zeros for the gaps.
Status AllGatherV(const Engine& engine, const AllGatherVCall& call, KeepAlive* keep);

// HcclReduceScatter for equal packed slices, HcclReduce if one rank alone receives, else
// HcclReduceScatterV; without that a HcclReduce per rank. Then zeros for the rest of the output.
Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call, KeepAlive* keep);
// HCCL documents no ReduceScatter in place.
Status CheckApart(const ReduceScatterVCall& call, int rank_size);

Status AllReduce(const Engine& engine, const AllReduceCall& call);

Status Broadcast(const Engine& engine, const BroadcastCall& call);

// HcclAlltoAllV, and then zeros for the gaps.
Status ExchangeV(const Engine& engine, const ExchangeVCall& call, KeepAlive* keep);

// HcclBatchSendRecv, or HcclSend or HcclRecv for the one message of a call that is not `batched`:
// the two ways do not match each other. Both ranks skip a message without elements.
Status Messages(const Engine& engine, const Transfer* list, int count, bool batched, Stream stream);

}  // namespace collops::hccl
