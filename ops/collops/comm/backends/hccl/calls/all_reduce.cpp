#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"

namespace collops::hccl {

Status AllReduce(const Engine& engine, const AllReduceCall& call) {
  if (call.count == 0) return Ok();  // on every rank
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  COLLOPS_RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &type, &reduction));
  return ToStatus(engine.api(),
                  engine.api().all_reduce(const_cast<void*>(call.x), call.output,
                                          static_cast<uint64_t>(call.count), type, reduction,
                                          engine.comm(), call.stream),
                  "HcclAllReduce");
}

}  // namespace collops::hccl
