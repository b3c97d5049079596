#include "collops/comm/backends/cuda/communicator.h"

#include <utility>

#include "collops/comm/backends/cuda/calls/collectives.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::cuda_peers {

CudaCommunicator::CudaCommunicator(std::shared_ptr<control::Control> control,
                                   const cuda::DriverApi& driver, bool compares)
    : CudaCommunicator(control, std::make_unique<Engine>(driver, control->spec()), compares) {}

CudaCommunicator::CudaCommunicator(std::shared_ptr<control::Control> control,
                                   std::unique_ptr<Engine> engine, bool compares)
    : StreamCommunicator(std::move(control), DeviceKind::kCuda, compares, std::move(engine)),
      engine_(static_cast<Engine&>(StreamCommunicator::engine())),
      compute_(engine_.driver(), device_index(),
               [this](void* stream) { return engine_.CheckStream(stream); }) {}

CudaCommunicator::~CudaCommunicator() {
  Finish();
}

Status CudaCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
      return Ok();
    case Primitive::kReduce:
    case Primitive::kEvenReduce:
      COLLOPS_CHECK_ARG(kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED, "backend cuda has no ",
                        Name(op), " of ", Name(dtype));
      return Ok();
    case Primitive::kMessages:
      return Error(ERROR_UNSUPPORTED, "backend cuda has no messages between two ranks: use nccl");
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend cuda has no windows: tensors need no special memory");
}

kernels::StreamCompute* CudaCommunicator::stream_compute() {
  KnowDevice();
  return &compute_;
}

Status CudaCommunicator::AllocateWindow(int64_t /*bytes*/, std::shared_ptr<Window>* /*window*/) {
  return Supports(Primitive::kWindows, DType::kUndefined, ReduceOp::kSum);
}

// Also a call without elements is a step, in which the kernels compare.
Status CudaCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return cuda_peers::AllGatherV(&engine_, call); });
}

Status CudaCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return cuda_peers::ReduceScatterV(&engine_, call); });
}

Status CudaCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return cuda_peers::ExchangeV(&engine_, call); });
}

Status CudaCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return cuda_peers::AllReduce(&engine_, call); });
}

Status CudaCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  return EnqueueBarrier(agreement, stream,
                        [&] { return cuda_peers::Barrier(&engine_, agreement, stream); });
}

void CudaCommunicator::OnReleased(bool past) {
  if (past) compute_.Release();
}

}  // namespace collops::cuda_peers
