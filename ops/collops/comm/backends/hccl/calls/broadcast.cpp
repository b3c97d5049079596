#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"

namespace collops::hccl {

Status Broadcast(const Engine& engine, const BroadcastCall& call) {
  if (call.count == 0) return Ok();  // on every rank
  const Carriage carriage = CarriageOf(call.dtype);
  return ToStatus(engine.api(),
                  engine.api().broadcast(
                      call.data, static_cast<uint64_t>(call.count * carriage.scale), carriage.type,
                      static_cast<uint32_t>(call.root), engine.comm(), call.stream),
                  "HcclBroadcast");
}

}  // namespace collops::hccl
