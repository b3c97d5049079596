#include "collops/comm/backends/nccl/communicator.h"

#include <utility>

#include "collops/comm/backends/nccl/calls/collectives.h"
#include "collops/comm/streams/stream_transfers.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::nccl {

NcclCommunicator::NcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                                   const cuda::DriverApi& driver, Comm comm, bool compares)
    : NcclCommunicator(control, std::make_unique<Engine>(api, driver, control->spec(), comm),
                       compares) {}

NcclCommunicator::NcclCommunicator(std::shared_ptr<control::Control> control,
                                   std::unique_ptr<Engine> engine, bool compares)
    : StreamCommunicator(std::move(control), DeviceKind::kCuda, compares, std::move(engine)),
      engine_(static_cast<Engine&>(StreamCommunicator::engine())),
      compute_(engine_.driver(), device_index()) {}

NcclCommunicator::~NcclCommunicator() {
  Finish();
}

Status NcclCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
    case Primitive::kMessages:
      return Ok();
    case Primitive::kReduce:
    case Primitive::kEvenReduce:
      COLLOPS_CHECK_ARG(kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED, "backend nccl has no ",
                        Name(op), " of ", Name(dtype));
      return Ok();
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend nccl has no windows: NCCL reads any memory of its GPU");
}

int64_t NcclCommunicator::ScratchBytes(DType dtype, ReduceOp /*op*/, int64_t own_count,
                                       int num_ranks) const {
  return StagingOf(dtype, own_count, num_ranks).bytes();
}

kernels::StreamCompute* NcclCommunicator::stream_compute() {
  KnowDevice();
  return &compute_;
}

Status NcclCommunicator::AllocateWindow(int64_t /*bytes*/, std::shared_ptr<Window>* /*window*/) {
  return Supports(Primitive::kWindows, DType::kUndefined, ReduceOp::kSum);
}

Status NcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return nccl::AllGatherV(engine_, call); });
}

Status NcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return nccl::ReduceScatterV(engine_, call); });
}

Status NcclCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return nccl::ExchangeV(engine_, call); });
}

Status NcclCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return nccl::AllReduce(engine_, call); });
}

Status NcclCommunicator::DoBroadcast(const BroadcastCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return nccl::Broadcast(engine_, call); });
}

Status NcclCommunicator::DoMessages(const CallName& name, Transfer* list, int count, void* stream) {
  const Status check = CheckStreamTransfers(name.called, "NCCL", list, count, rank());
  if (!check.ok()) return control().Excuse(check);
  return EnqueueMessages(name.called, list, count, stream,
                         [&] { return nccl::Messages(engine_, list, count, stream); });
}

Status NcclCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  return EnqueueBarrier(agreement, stream, [&] { return nccl::Barrier(engine_, stream); });
}

// Split by NCCL if the ranks are connected; else the subgroup meets by a unique id of its own. A
// group without a board is always split by NCCL.
Status NcclCommunicator::DoSplit(const std::vector<int>& members, int index,
                                 const std::string& /*name*/, std::shared_ptr<void>* part) {
  return RunOnDevice("split", [&]() -> Status {
    if (!control().has_board()) COLLOPS_RETURN_IF_ERROR(MeetOnce("split"));
    if (!engine_.connected()) return Ok();
    const int color = index < 0 ? kNoColor : members[0];
    std::shared_ptr<CommHandle> made;
    COLLOPS_RETURN_IF_ERROR(InCall(
        "split",
        engine_.handle()->Split(color, index < 0 ? 0 : index, engine_.InThread(device_index()),
                                engine_.UntilTimeout(), &made)));
    if (made != nullptr) *part = std::make_shared<PartInSpec>(std::move(made));
    return Ok();
  });
}

void NcclCommunicator::OnReleased(bool past) {
  if (past) compute_.Release();
  if (spec().engine_part != nullptr)
    std::static_pointer_cast<PartInSpec>(spec().engine_part)->reset();
}

}  // namespace collops::nccl
