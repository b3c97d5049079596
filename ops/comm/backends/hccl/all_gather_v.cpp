#include "comm/backends/hccl/all_gather_v.h"

#include "comm/backends/hccl/counts.h"
#include "comm/backends/hccl/error.h"
#include "comm/backends/hccl/types.h"
#include "comm/backends/hccl/zero.h"

namespace collops::hccl {

Status AllGatherV(const Engine& engine, const AllGatherVCall& call, int rank, int rank_size,
                  KeepAlive* keep) {
  const Api& api = engine.api();
  const Carriage carriage = CarriageOf(call.dtype);
  const HcclCounts counts =
      TakeCounts(call.recv_counts, call.rdispls, rank_size, carriage.scale, keep);
  const auto send_count = static_cast<uint64_t>(call.recv_counts[rank] * carriage.scale);
  // The gaps after the exchange: if zeroing fails, this rank has still taken part in the exchange.
  RETURN_IF_ERROR(
      ToStatus(api,
               api.all_gather_v(const_cast<void*>(call.x), send_count, call.output, counts.counts,
                                counts.displs, carriage.type, engine.comm(), call.stream),
               "HcclAllGatherV"));
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    RETURN_IF_ERROR(Zero(api, call.output, call.gaps[i], call.dtype, call.stream));
  }
  return Ok();
}

}  // namespace collops::hccl
