#include "collops/comm/backends/nccl/backend.h"

#include <memory>
#include <utility>

#include "collops/comm/backends/nccl/engine.h"
#include "collops/comm/backends/nccl/library.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/kernels/cuda/compute.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::nccl {
namespace {

// GPUs connected by NCCL, on one host or many; the rest is StreamCommunicator's. NCCL moves; what
// SPEC wants in rank order is reduced by a kernel of ours, so the bits are those of the CPU. With
// an ncclComm_t of the caller's there is a board only with COLLOPS_CHECK=1.
class NcclCommunicator final : public StreamCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<control::Control> control, std::unique_ptr<Engine> engine,
                   bool compares)
      : StreamCommunicator(std::move(control), DeviceKind::kCuda, compares, std::move(engine)),
        engine_(static_cast<Engine&>(StreamCommunicator::engine())) {
    SetCompute(std::make_unique<cuda::CudaCompute>(engine_.driver(), device_index()));
  }
  ~NcclCommunicator() override { Finish(); }

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override {
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
    return Error(ERROR_UNSUPPORTED,
                 "backend nccl has no windows: NCCL reads any memory of its GPU");
  }
  int64_t ScratchBytes(DType dtype, ReduceOp /*op*/, int64_t own_count,
                       int num_ranks) const override {
    return StagingOf(dtype, own_count, num_ranks).bytes();
  }

 protected:
  Status DoAllGatherV(const AllGatherVCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return nccl::AllGatherV(engine_, call); });
  }
  Status DoReduceScatterV(const ReduceScatterVCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return nccl::ReduceScatterV(engine_, call); });
  }
  Status DoExchangeV(const ExchangeVCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return nccl::ExchangeV(engine_, call); });
  }
  Status DoAllReduce(const AllReduceCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return nccl::AllReduce(engine_, call); });
  }
  Status DoBroadcast(const BroadcastCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return nccl::Broadcast(engine_, call); });
  }
  Status DoMessages(const CallName& name, Transfer* list, int count, void* stream) override {
    return EnqueueMessages(name.called, "NCCL", list, count, stream,
                           [&] { return nccl::Messages(engine_, list, count, stream); });
  }
  Status DoBarrier(const Agreement& agreement, void* stream) override {
    return EnqueueBarrier(agreement, stream, [&] { return nccl::Barrier(engine_, stream); });
  }

  // Split by NCCL if the ranks are connected; else the subgroup meets by a unique id of its own. A
  // group without a board is always split by NCCL.
  Status DoSplit(const std::vector<int>& members, int index, const std::string& /*name*/,
                 std::shared_ptr<void>* part) override {
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

 private:
  Engine& engine_;  // owned by StreamCommunicator
};

class Libraries {
 public:
  const Api* nccl = nullptr;
  const cuda::DriverApi* driver = nullptr;

  Status Load() {
    COLLOPS_RETURN_IF_ERROR(OfBackend(cuda::LoadDriver(&driver)));
    COLLOPS_RETURN_IF_ERROR(nccl::Load(&nccl));
    return OfBackend(cuda::Kernels::Available());
  }

  // `comm`: the caller's ncclComm_t, or null.
  std::shared_ptr<Communicator> Make(std::shared_ptr<control::Control> control, Comm comm,
                                     bool compares) const {
    auto engine = std::make_unique<Engine>(*nccl, *driver, control->spec(), comm);
    return std::make_shared<NcclCommunicator>(std::move(control), std::move(engine), compares);
  }

 private:
  static Status OfBackend(const Status& status) {
    return status.ok() ? Ok() : Error(status.code(), "backend nccl: ", status.message());
  }
};

}  // namespace

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size);
}

Status Available() {
  Libraries libraries;
  return libraries.Load();
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControl(spec, &control, &compares));
  *communicator = libraries.Make(std::move(control), nullptr, compares);
  return Ok();
}

Status Describe(void* comm, CommunicatorSpec* spec) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  const Api& api = *libraries.nccl;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.comm_user_rank(comm, &spec->rank), "the ncclComm_t: ncclCommUserRank"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.comm_count(comm, &spec->rank_size), "the ncclComm_t: ncclCommCount"));
  spec->comm_domain = Concat("ncclComm/", comm);
  return Ok();
}

Status Adopt(const CommunicatorSpec& spec, void* comm,
             std::shared_ptr<Communicator>* communicator) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  std::shared_ptr<control::Control> control;
  bool compares = false;
  COLLOPS_RETURN_IF_ERROR(MakeControlOfCaller(spec, &control, &compares));
  *communicator = libraries.Make(std::move(control), comm, compares);
  return Ok();
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  const Api* api = nullptr;
  const Status loaded = Load(&api);
  if (!loaded.ok()) return {{"no", loaded.message()}};
  return {{"version", VersionText()}};
}

}  // namespace collops::nccl
