#include "comm/backends/hccl/backend.h"

#include "comm/backends/backend_table.h"
#include "comm/backends/hccl/communicator.h"
#include "comm/backends/hccl/error.h"
#include "core/env.h"

namespace collops::hccl {
namespace {

// The ranks in host memory, under the same domain; its first contact has begun.
Status CreateHost(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* host) {
  return FindBackend("shm")->create(spec, host);
}

}  // namespace

Status Available() {
  const Api* api = nullptr;
  return Load(&api);
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  RETURN_IF_ERROR(Load(&api));
  Env env;
  RETURN_IF_ERROR(Env::Read(&env));
  std::shared_ptr<Communicator> host;
  RETURN_IF_ERROR(CreateHost(spec, &host));
  *communicator =
      std::make_shared<HcclCommunicator>(spec, *api, nullptr, std::move(host), env.check);
  return Ok();
}

Status Describe(void* comm, CommunicatorSpec* spec) {
  const Api* api = nullptr;
  RETURN_IF_ERROR(Load(&api));
  uint32_t rank = 0;
  uint32_t rank_size = 0;
  char name[kCommNameBytes + 1] = {};
  RETURN_IF_ERROR(ToStatus(*api, api->get_rank_id(comm, &rank), "hcclComm: HcclGetRankId"));
  RETURN_IF_ERROR(
      ToStatus(*api, api->get_rank_size(comm, &rank_size), "hcclComm: HcclGetRankSize"));
  RETURN_IF_ERROR(ToStatus(*api, api->get_comm_name(comm, name), "hcclComm: HcclGetCommName"));
  spec->rank = static_cast<int>(rank);
  spec->rank_size = static_cast<int>(rank_size);
  spec->comm_domain = Concat("hcclComm/", name);
  return Ok();
}

Status Adopt(const CommunicatorSpec& spec, void* comm,
             std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  RETURN_IF_ERROR(Load(&api));
  Env env;
  RETURN_IF_ERROR(Env::Read(&env));
  CommunicatorSpec timed = spec;
  timed.timeout_s = env.timeout_s;
  std::shared_ptr<Communicator> host;
  if (env.check) RETURN_IF_ERROR(CreateHost(timed, &host));
  *communicator = std::make_shared<HcclCommunicator>(timed, *api, comm, std::move(host), env.check);
  return Ok();
}

}  // namespace collops::hccl
