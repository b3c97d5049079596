#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/calls/counts.h"
#include "collops/comm/backends/hccl/calls/device_memory.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"

namespace collops::hccl {
namespace {

Status GatherEvenly(const Engine& engine, const AllGatherVCall& call) {
  const Carriage carriage = CarriageOf(call.dtype);
  const auto count = static_cast<uint64_t>(call.recv_counts[0] * carriage.scale);
  return ToStatus(engine.api(),
                  engine.api().all_gather(const_cast<void*>(call.x), call.output, count,
                                          carriage.type, engine.comm(), call.stream),
                  "HcclAllGather");
}

// HCCL documents that x is not the output.
Status GatherAtOnce(const Engine& engine, const AllGatherVCall& call, KeepAlive* keep) {
  const int64_t own = call.recv_counts[engine.rank()];
  const void* const place = ElementAt(call.output, call.rdispls[engine.rank()], call.dtype);
  COLLOPS_CHECK_ARG(
      own == 0 || call.x != place, ERROR_INVALID_TENSOR_ADDR,
      "x is its own block of the output, and HcclAllGatherV does not gather in place unless ",
      "all blocks have one size: pass other memory");
  const Carriage carriage = CarriageOfV(call.dtype);
  const HcclCounts counts = TakeCounts(call.recv_counts, call.rdispls, engine.size(),
                                       carriage.scale, call.keep != nullptr, keep);
  const auto send_count = static_cast<uint64_t>(call.recv_counts[engine.rank()] * carriage.scale);
  return ToStatus(
      engine.api(),
      engine.api().all_gather_v(const_cast<void*>(call.x), send_count, call.output, counts.counts,
                                counts.displs, carriage.type, engine.comm(), call.stream),
      "HcclAllGatherV");
}

// Each rank broadcasts its block from its place in the output.
Status GatherByBroadcasts(const Engine& engine, const AllGatherVCall& call) {
  const Carriage carriage = CarriageOf(call.dtype);
  const int64_t own = call.recv_counts[engine.rank()];
  COLLOPS_RETURN_IF_ERROR(Copy(engine.api(),
                               ElementAt(call.output, call.rdispls[engine.rank()], call.dtype),
                               call.x, own * SizeOf(call.dtype), call.stream));
  for (int r = 0; r < engine.size(); ++r) {
    if (call.recv_counts[r] == 0) continue;
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        engine.api(),
        engine.api().broadcast(ElementAt(call.output, call.rdispls[r], call.dtype),
                               static_cast<uint64_t>(call.recv_counts[r] * carriage.scale),
                               carriage.type, static_cast<uint32_t>(r), engine.comm(), call.stream),
        "HcclBroadcast"));
  }
  return Ok();
}

Status Gather(const Engine& engine, const AllGatherVCall& call, KeepAlive* keep) {
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.recv_counts, engine.size())) return Ok();
  if (AreEven(call.recv_counts, call.rdispls, engine.size())) return GatherEvenly(engine, call);
  return engine.abilities().all_gather_v ? GatherAtOnce(engine, call, keep)
                                         : GatherByBroadcasts(engine, call);
}

}  // namespace

Status AllGatherV(const Engine& engine, const AllGatherVCall& call, KeepAlive* keep) {
  // The gaps after the exchange: if zeroing fails, this rank has still taken part in the exchange.
  COLLOPS_RETURN_IF_ERROR(Gather(engine, call, keep));
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    COLLOPS_RETURN_IF_ERROR(Zero(engine.api(), call.output, call.gaps[i], call.dtype, call.stream));
  }
  return Ok();
}

}  // namespace collops::hccl
