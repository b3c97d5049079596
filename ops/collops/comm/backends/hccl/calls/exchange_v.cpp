#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/calls/counts.h"
#include "collops/comm/backends/hccl/calls/device_memory.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"

namespace collops::hccl {

// A rank that neither sends nor receives takes part, because it does not know what the others do;
// HCCL takes no null.
Status ExchangeV(const Engine& engine, const ExchangeVCall& call, KeepAlive* keep) {
  const Carriage carriage = CarriageOf(call.dtype);
  const bool held = call.keep != nullptr;
  const HcclCounts sends =
      TakeCounts(call.send_counts, call.sdispls, engine.size(), carriage.scale, held, keep);
  const HcclCounts receives =
      TakeCounts(call.recv_counts, call.rdispls, engine.size(), carriage.scale, held, keep);
  const void* const x = AreZero(call.send_counts, engine.size()) ? engine.stand_in() : call.x;
  const void* const output =
      AreZero(call.recv_counts, engine.size()) ? engine.stand_in() : call.output;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(engine.api(),
               engine.api().all_to_all_v(x, sends.counts, sends.displs, carriage.type, output,
                                         receives.counts, receives.displs, carriage.type,
                                         engine.comm(), call.stream),
               "HcclAlltoAllV"));
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    COLLOPS_RETURN_IF_ERROR(Zero(engine.api(), call.output, call.gaps[i], call.dtype, call.stream));
  }
  return Ok();
}

}  // namespace collops::hccl
