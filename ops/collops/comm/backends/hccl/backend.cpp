#include "collops/comm/backends/hccl/backend.h"

#include <cstring>
#include <utility>

#include "collops/comm/backends/hccl/engine.h"
#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/backends/hccl/npu.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/comm/streams/stream_communicator.h"

namespace collops::hccl {
namespace {

// The messages of these two names are one each, and their peers make the other.
bool IsBatch(const char* name) {
  return std::strcmp(name, "Send") != 0 && std::strcmp(name, "Recv") != 0;
}

// NPUs connected by HCCL, on one host or many; the rest is StreamCommunicator's. With an HcclComm
// of the caller's there is a board only with COLLOPS_CHECK=1.
class HcclCommunicator final : public StreamCommunicator {
 public:
  HcclCommunicator(std::shared_ptr<control::Control> control, std::unique_ptr<Engine> engine,
                   bool compares)
      : StreamCommunicator(std::move(control), DeviceKind::kNpu, compares, std::move(engine)),
        engine_(static_cast<Engine&>(StreamCommunicator::engine())) {
    SetCompute(std::make_unique<AclCompute>(engine_.api(), device_index()));
  }
  ~HcclCommunicator() override { Finish(); }

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override {
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

 protected:
  Status DoAllGatherV(const AllGatherVCall& call) override {
    return Enqueue(call, [&](KeepAlive* keep) { return hccl::AllGatherV(engine_, call, keep); });
  }
  Status DoReduceScatterV(const ReduceScatterVCall& call) override {
    const Status apart = CheckApart(call, size());
    if (!apart.ok()) return Decline(call.agreement->called(), apart);
    return Enqueue(call,
                   [&](KeepAlive* keep) { return hccl::ReduceScatterV(engine_, call, keep); });
  }
  Status DoExchangeV(const ExchangeVCall& call) override {
    return Enqueue(call, [&](KeepAlive* keep) { return hccl::ExchangeV(engine_, call, keep); });
  }
  Status DoAllReduce(const AllReduceCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return hccl::AllReduce(engine_, call); });
  }
  Status DoBroadcast(const BroadcastCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return hccl::Broadcast(engine_, call); });
  }
  Status DoMessages(const CallName& name, Transfer* list, int count, void* stream) override {
    return EnqueueMessages(name.called, "HCCL", list, count, stream, [&] {
      return hccl::Messages(engine_, list, count, IsBatch(name.op), stream);
    });
  }
  Status DoBarrier(const Agreement& agreement, void* stream) override {
    return EnqueueBarrier(agreement, stream, [&] {
      return ToStatus(engine_.api(), engine_.api().barrier(engine_.comm(), stream), "HcclBarrier");
    });
  }

  // A group that was connected by a rank table must be split by HCCL. Others are split by HCCL if
  // they are connected and the keys keep their order; else the subgroup meets by a root info of its
  // own. What HCCL does not split ends no group.
  Status DoSplit(const std::vector<int>& members, int index, const std::string& name,
                 std::shared_ptr<void>* part) override {
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
      return status.code() == ERROR_UNSUPPORTED ? control().KeepGroupAfter(said) : said;
    });
  }

 private:
  Engine& engine_;  // owned by StreamCommunicator
};

}  // namespace

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size);
}

Status Available() {
  const Api* api = nullptr;
  return Load(&api);
}

std::shared_ptr<Communicator> Make(std::shared_ptr<control::Control> control, const Api& api,
                                   void* comm, bool compares) {
  const CommunicatorSpec& spec = control->spec();
  auto engine = std::make_unique<Engine>(api, spec.rank, spec.rank_size, comm);
  return std::make_shared<HcclCommunicator>(std::move(control), std::move(engine), compares);
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  // Of one that is not complete yet, HCCL says it itself.
  if (spec.table != nullptr && spec.table->completed) {
    COLLOPS_RETURN_IF_ERROR(CheckDeviceRules(*spec.table));
  }
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControl(spec, &control, &compares));
  *communicator = Make(std::move(control), *api, nullptr, compares);
  return Ok();
}

Status Describe(void* comm, CommunicatorSpec* spec) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  uint32_t rank = 0;
  uint32_t rank_size = 0;
  char name[kCommNameBytes + 1] = {};
  COLLOPS_RETURN_IF_ERROR(ToStatus(*api, api->get_rank_id(comm, &rank), "hcclComm: HcclGetRankId"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(*api, api->get_rank_size(comm, &rank_size), "hcclComm: HcclGetRankSize"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(*api, api->get_comm_name(comm, name), "hcclComm: HcclGetCommName"));
  spec->rank = static_cast<int>(rank);
  spec->rank_size = static_cast<int>(rank_size);
  spec->comm_domain = Concat("hcclComm/", name);
  return Ok();
}

Status Adopt(const CommunicatorSpec& spec, void* comm,
             std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControlOfCaller(spec, &control, &compares));
  *communicator = Make(std::move(control), *api, comm, compares);
  return Ok();
}

}  // namespace collops::hccl
