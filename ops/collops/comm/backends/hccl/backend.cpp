#include "collops/comm/backends/hccl/backend.h"

#include "collops/comm/backends/hccl/communicator.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/placement/rank_table/device_rules.h"
#include "collops/comm/placement/rank_table/rank_table.h"
#include "collops/core/env.h"

namespace collops::hccl {

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size);
}

Status Available() {
  const Api* api = nullptr;
  return Load(&api);
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const Api* api = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&api));
  // Of one that is not complete yet, HCCL says it itself.
  if (spec.table != nullptr && spec.table->completed) {
    COLLOPS_RETURN_IF_ERROR(CheckDeviceRules(*spec.table));
  }
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  std::shared_ptr<control::Control> control;
  if (spec.has_no_board) {
    control = std::make_shared<control::Control>(spec);
  } else {
    COLLOPS_RETURN_IF_ERROR(control::Control::Create(spec, 0, &control, control::Reach::kHosts));
  }
  *communicator = std::make_shared<HcclCommunicator>(std::move(control), *api, nullptr, env.check);
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
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  CommunicatorSpec timed = spec;
  timed.timeout_s = env.timeout_s;
  auto control = std::make_shared<control::Control>(timed);
  if (env.check) COLLOPS_RETURN_IF_ERROR(control::Control::Create(timed, 0, &control));
  *communicator = std::make_shared<HcclCommunicator>(std::move(control), *api, comm, env.check);
  return Ok();
}

}  // namespace collops::hccl
