#include "collops/comm/backends/cuda/backend.h"

#include <memory>
#include <utility>

#include "collops/comm/backends/cuda/disagreement.h"
#include "collops/comm/backends/cuda/engine.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/core/env.h"
#include "collops/kernels/cuda/blaslt.h"
#include "collops/kernels/cuda/compute.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::cuda_peers {
namespace {

// GPUs of one host that address each other's memory: a call is one kernel on each, or three, which
// wait for the kernels of the peers. Ranks are threads or processes, and may share a GPU. The
// kernels compare the calls, so a disagreement is reported by the next call; the rest is
// StreamCommunicator's.
class CudaCommunicator final : public StreamCommunicator {
 public:
  CudaCommunicator(std::shared_ptr<control::Control> control, std::unique_ptr<Engine> engine,
                   bool compares)
      : StreamCommunicator(std::move(control), DeviceKind::kCuda, compares, std::move(engine)),
        engine_(static_cast<Engine&>(StreamCommunicator::engine())) {
    SetCompute(std::make_unique<cuda::CudaCompute>(
        engine_.driver(), device_index(),
        [this](void* stream) { return engine_.CheckStream(stream); }));
  }
  ~CudaCommunicator() override { Finish(); }

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override {
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

 protected:
  // Also a call without elements is a step, in which the kernels compare.
  Status DoAllGatherV(const AllGatherVCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return cuda_peers::AllGatherV(&engine_, call); });
  }
  Status DoReduceScatterV(const ReduceScatterVCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return cuda_peers::ReduceScatterV(&engine_, call); });
  }
  Status DoExchangeV(const ExchangeVCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return cuda_peers::ExchangeV(&engine_, call); });
  }
  Status DoAllReduce(const AllReduceCall& call) override {
    return Enqueue(call, [&](KeepAlive*) { return cuda_peers::AllReduce(&engine_, call); });
  }
  Status DoBarrier(const Agreement& agreement, void* stream) override {
    return EnqueueBarrier(agreement, stream,
                          [&] { return cuda_peers::Barrier(&engine_, agreement, stream); });
  }

 private:
  Engine& engine_;  // owned by StreamCommunicator
};

Status Load(const cuda::DriverApi** driver) {
  const auto of_backend = [](const Status& status) {
    return status.ok() ? Ok() : Error(status.code(), "backend cuda: ", status.message());
  };
  COLLOPS_RETURN_IF_ERROR(of_backend(cuda::LoadDriver(driver)));
  return of_backend(cuda::Kernels::Available());
}

}  // namespace

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size) + CallTable::Bytes(rank_size);
}

Status Available() {
  const cuda::DriverApi* driver = nullptr;
  return Load(&driver);
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const cuda::DriverApi* driver = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&driver));
  COLLOPS_CHECK_ARG(spec.rank_size <= cuda::kMostRanks, ERROR_UNSUPPORTED,
                    "backend cuda has at most ", cuda::kMostRanks, " ranks, got ", spec.rank_size,
                    ": use nccl");
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  std::shared_ptr<control::Control> control;
  COLLOPS_RETURN_IF_ERROR(
      control::Control::Create(spec, CallTable::Bytes(spec.rank_size), &control));
  auto engine = std::make_unique<Engine>(*driver, control->spec());
  *communicator =
      std::make_shared<CudaCommunicator>(std::move(control), std::move(engine), env.check);
  return Ok();
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  const auto there = [](const Status& status) {
    return status.ok() ? std::string("found") : Concat("no: ", status.message());
  };
  auto facts = cuda::GpuFacts();
  facts.emplace_back("GPU kernels", there(cuda::Kernels::Available()));
  const cuda::BlasApi* blas = nullptr;
  facts.emplace_back("cuBLASLt, for LinearParallel", there(cuda::LoadBlas(&blas)));
  return facts;
}

}  // namespace collops::cuda_peers
