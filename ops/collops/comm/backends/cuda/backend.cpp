#include "collops/comm/backends/cuda/backend.h"

#include "collops/comm/backends/cuda/communicator.h"
#include "collops/comm/backends/cuda/disagreement.h"
#include "collops/core/env.h"
#include "collops/kernels/cuda/blaslt.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/peers/region.h"

namespace collops::cuda_peers {
namespace {

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

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
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
  *communicator = std::make_shared<CudaCommunicator>(std::move(control), *driver, env.check);
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
