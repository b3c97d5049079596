#include "collops/comm/backends/hccl/communicator.h"

#include <cstring>
#include <utility>

#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/calls/counts.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"
#include "collops/comm/streams/stream_transfers.h"

namespace collops::hccl {
namespace {

// The messages of these two names are one each, and their peers make the other.
bool IsBatch(const char* name) {
  return std::strcmp(name, "Send") != 0 && std::strcmp(name, "Recv") != 0;
}

}  // namespace

HcclCommunicator::HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                                   Comm comm, bool compares)
    : HcclCommunicator(
          control,
          std::make_unique<Engine>(api, control->spec().rank, control->spec().rank_size, comm),
          compares) {}

HcclCommunicator::HcclCommunicator(std::shared_ptr<control::Control> control,
                                   std::unique_ptr<Engine> engine, bool compares)
    : StreamCommunicator(std::move(control), DeviceKind::kNpu, compares, std::move(engine)),
      engine_(static_cast<Engine&>(StreamCommunicator::engine())),
      compute_(engine_.api(), device_index()) {}

HcclCommunicator::~HcclCommunicator() {
  Finish();
}

Status HcclCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
    case Primitive::kMessages:
      return Ok();
    case Primitive::kReduce:
      return FindReductionV(dtype, op, &type, &reduction);
    case Primitive::kEvenReduce:
      return FindReduction(dtype, op, &type, &reduction);
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend hccl has no windows: HCCL reads any NPU memory");
}

kernels::StreamCompute* HcclCommunicator::stream_compute() {
  KnowDevice();
  return &compute_;
}

Status HcclCommunicator::AllocateWindow(int64_t /*bytes*/, std::shared_ptr<Window>* /*window*/) {
  return Supports(Primitive::kWindows, DType::kUndefined, ReduceOp::kSum);
}

Status HcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call, [&](KeepAlive* keep) { return hccl::AllGatherV(engine_, call, keep); });
}

Status HcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const Status apart = CheckApart(call, size());
  if (!apart.ok()) return Decline(call.agreement->called(), apart);
  return Enqueue(call, [&](KeepAlive* keep) { return hccl::ReduceScatterV(engine_, call, keep); });
}

Status HcclCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Enqueue(call, [&](KeepAlive* keep) { return hccl::ExchangeV(engine_, call, keep); });
}

Status HcclCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return hccl::AllReduce(engine_, call); });
}

Status HcclCommunicator::DoBroadcast(const BroadcastCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return hccl::Broadcast(engine_, call); });
}

Status HcclCommunicator::DoMessages(const CallName& name, Transfer* list, int count, void* stream) {
  const Status check = CheckStreamTransfers(name.called, "HCCL", list, count, rank());
  if (!check.ok()) return control().Excuse(check);
  return EnqueueMessages(name.called, list, count, stream, [&] {
    return hccl::Messages(engine_, list, count, IsBatch(name.op), stream);
  });
}

Status HcclCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  return EnqueueBarrier(agreement, stream, [&] {
    return ToStatus(engine_.api(), engine_.api().barrier(engine_.comm(), stream), "HcclBarrier");
  });
}

// A group that was connected by a rank table must be split by HCCL. Others are split by HCCL if
// they are connected and the keys keep their order; else the subgroup meets by a root info of its
// own. What HCCL does not split ends no group.
Status HcclCommunicator::DoSplit(const std::vector<int>& members, int index,
                                 const std::string& name, std::shared_ptr<void>* part) {
  return RunOnDevice("split", [&]() -> Status {
    const bool needed = spec().table != nullptr || !control().has_board();
    if (needed) COLLOPS_RETURN_IF_ERROR(MeetOnce("split"));
    if (!engine_.connected()) return Ok();
    std::shared_ptr<CommHandle> made;
    const Status status =
        CommHandle::Split(engine_.handle(), members, index, Concat("collops", name), &made);
    const bool must = !control().has_board() || engine_.handle()->is_from_table();
    if (status.code() == ERROR_UNSUPPORTED && !must) return Ok();
    if (made != nullptr) *part = std::make_shared<PartInSpec>(std::move(made));
    const Status said = InCall("split", status);
    return status.code() == ERROR_UNSUPPORTED ? control().Excuse(said) : said;
  });
}

void HcclCommunicator::OnReleased(bool past) {
  if (past) compute_.Release();
  if (spec().engine_part != nullptr)
    std::static_pointer_cast<PartInSpec>(spec().engine_part)->reset();
}

}  // namespace collops::hccl
