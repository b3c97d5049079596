#include "collops/comm/backends/nccl/calls/collectives.h"
#include "collops/comm/backends/nccl/calls/group.h"

namespace collops::nccl {
namespace {

Status Gather(const Engine& engine, const AllGatherVCall& call) {
  const Api& api = engine.api();
  const int64_t size = SizeOf(call.dtype);
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.recv_counts, engine.size())) return Ok();
  if (AreEven(call.recv_counts, call.rdispls, engine.size())) {
    const auto bytes = static_cast<size_t>(call.recv_counts[0] * size);
    return engine.Taken(
        api.all_gather(call.x, call.output, bytes, DataType::kInt8, engine.comm(), call.stream),
        "ncclAllGather");
  }
  return InGroup(engine, [&]() -> Status {
    for (int r = 0; r < engine.size(); ++r) {
      if (call.recv_counts[r] == 0) continue;
      void* const block = ByteAt(call.output, call.rdispls[r], call.dtype);
      const void* const send = r == engine.rank() ? call.x : block;
      COLLOPS_RETURN_IF_ERROR(
          ToStatus(api,
                   api.broadcast(send, block, static_cast<size_t>(call.recv_counts[r] * size),
                                 DataType::kInt8, r, engine.comm(), call.stream),
                   "ncclBroadcast"));
    }
    return Ok();
  });
}

}  // namespace

Status AllGatherV(const Engine& engine, const AllGatherVCall& call) {
  // The gaps after the exchange: if zeroing fails, this rank has still taken part in the exchange.
  COLLOPS_RETURN_IF_ERROR(Gather(engine, call));
  return ZeroGaps(engine, call);
}

Status Broadcast(const Engine& engine, const BroadcastCall& call) {
  if (call.count == 0) return Ok();
  const auto bytes = static_cast<size_t>(call.count * SizeOf(call.dtype));
  return engine.Taken(engine.api().broadcast(call.data, call.data, bytes, DataType::kInt8,
                                             call.root, engine.comm(), call.stream),
                      "ncclBroadcast");
}

Status Barrier(const Engine& engine, Stream stream) {
  void* const word = reinterpret_cast<void*>(engine.stand_in().pointer());
  const Status taken = engine.Taken(engine.api().all_reduce(word, word, 1, DataType::kInt8,
                                                            Reduction::kSum, engine.comm(), stream),
                                    "ncclAllReduce");
  engine.stand_in().UsedOn(stream);
  return taken;
}

}  // namespace collops::nccl
