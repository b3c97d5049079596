#include <vector>

#include "collops/comm/backends/nccl/calls/collectives.h"
#include "collops/comm/backends/nccl/calls/group.h"

namespace collops::nccl {

Status ExchangeV(const Engine& engine, const ExchangeVCall& call) {
  const int64_t size = SizeOf(call.dtype);
  const int own = engine.rank();
  const Status moved = InGroup(engine, [&]() -> Status {
    for (int r = 0; r < engine.size(); ++r) {
      if (r == own) continue;
      COLLOPS_RETURN_IF_ERROR(Send(engine, ByteAt(call.x, call.sdispls[r], call.dtype),
                                   call.send_counts[r] * size, r, call.stream));
      COLLOPS_RETURN_IF_ERROR(Receive(engine, ByteAt(call.output, call.rdispls[r], call.dtype),
                                      call.recv_counts[r] * size, r, call.stream));
    }
    return Ok();
  });
  COLLOPS_RETURN_IF_ERROR(moved);
  COLLOPS_RETURN_IF_ERROR(cuda::Copy(
      engine.driver(), ByteAt(call.output, call.rdispls[own], call.dtype),
      ByteAt(call.x, call.sdispls[own], call.dtype), call.recv_counts[own] * size, call.stream));
  return ZeroGaps(engine, call);
}

// The check of the list has found as many messages to this rank as from it, of the same sizes.
Status Messages(const Engine& engine, const Transfer* list, int count, Stream stream) {
  std::vector<const Transfer*> own[2];
  const Status moved = InGroup(engine, [&]() -> Status {
    for (int i = 0; i < count; ++i) {
      const Transfer& transfer = list[i];
      if (transfer.peer == engine.rank()) {
        own[transfer.way].push_back(&transfer);
      } else if (transfer.way == Transfer::kSend) {
        COLLOPS_RETURN_IF_ERROR(Send(engine, transfer.data, transfer.bytes, transfer.peer, stream));
      } else {
        COLLOPS_RETURN_IF_ERROR(
            Receive(engine, transfer.data, transfer.bytes, transfer.peer, stream));
      }
    }
    return Ok();
  });
  COLLOPS_RETURN_IF_ERROR(moved);
  const auto& [sends, receives] = own;
  for (size_t i = 0; i < sends.size(); ++i) {
    COLLOPS_RETURN_IF_ERROR(
        cuda::Copy(engine.driver(), receives[i]->data, sends[i]->data, sends[i]->bytes, stream));
  }
  return Ok();
}

}  // namespace collops::nccl
