#include "collops/comm/backends/nccl/backend.h"

#include "collops/comm/backends/nccl/communicator.h"
#include "collops/comm/backends/nccl/library/error.h"
#include "collops/core/env.h"
#include "collops/kernels/cuda/kernels.h"

namespace collops::nccl {
namespace {

class Libraries {
 public:
  const Api* nccl = nullptr;
  const cuda::DriverApi* driver = nullptr;

  Status Load() {
    COLLOPS_RETURN_IF_ERROR(OfBackend(cuda::LoadDriver(&driver)));
    COLLOPS_RETURN_IF_ERROR(nccl::Load(&nccl));
    return OfBackend(cuda::Kernels::Available());
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

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  Libraries libraries;
  COLLOPS_RETURN_IF_ERROR(libraries.Load());
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  std::shared_ptr<control::Control> control;
  if (spec.has_no_board) {
    control = std::make_shared<control::Control>(spec);
  } else {
    COLLOPS_RETURN_IF_ERROR(control::Control::Create(spec, 0, &control, control::Reach::kHosts));
  }
  *communicator = std::make_shared<NcclCommunicator>(std::move(control), *libraries.nccl,
                                                     *libraries.driver, nullptr, env.check);
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
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  CommunicatorSpec timed = spec;
  timed.timeout_s = env.timeout_s;
  auto control = std::make_shared<control::Control>(timed);
  if (env.check) COLLOPS_RETURN_IF_ERROR(control::Control::Create(timed, 0, &control));
  *communicator = std::make_shared<NcclCommunicator>(std::move(control), *libraries.nccl,
                                                     *libraries.driver, comm, env.check);
  return Ok();
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  const Api* api = nullptr;
  const Status loaded = nccl::Load(&api);
  if (!loaded.ok()) return {{"no", loaded.message()}};
  const int version = LoadedVersion();
  return {{"version", Concat(version / 10000, ".", version / 100 % 100, ".", version % 100)}};
}

}  // namespace collops::nccl
