#include "collops/comm/backends/nccl/engine.h"

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/backends/nccl/library/error.h"
#include "collops/kernels/cuda/devices.h"

namespace collops::nccl {
namespace {

std::string VersionText() {
  const int version = LoadedVersion();
  return Concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// What a rank tells the others: rank 0 has made the unique id.
struct Greeting {
  UniqueId id;
  cuda::Home home;
};

Status ShareUniqueId(control::Control* control, bool compares, const Engine& engine, int device,
                     UniqueId* id, DeviceShare* share) {
  Greeting own = {};
  if (engine.rank() == 0) {
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(engine.api(), engine.api().get_unique_id(&own.id), "ncclGetUniqueId"));
  }
  COLLOPS_RETURN_IF_ERROR(cuda::FindHome(engine.driver(), device, &own.home));
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares ? "1" : "0")
      .EqualText("NCCL's version", VersionText().c_str());
  std::vector<Greeting> all(static_cast<size_t>(engine.size()));
  COLLOPS_RETURN_IF_ERROR(control->Share(agreement, &own, sizeof(own), all.data()));
  *id = all[0].id;
  std::vector<cuda::Home> homes;
  for (const Greeting& greeting : all) homes.push_back(greeting.home);
  cuda::WarnOfSharing(engine.driver(), device, engine.rank(), homes);
  *share = ShareOf(homes);
  return Ok();
}

}  // namespace

// Connects the ranks by the part that a split made, or by rank 0's unique id, which goes over the
// host connection. The ranks also agree on NCCL's version.
Status Engine::Meet(control::Control* control, bool compares, int device) {
  control_ = control;
  if (caller_comm_ != nullptr) return Connect(device, caller_comm_);
  const std::shared_ptr<void>& part = control->spec().engine_part;
  if (part != nullptr) {
    auto& handle = *std::static_pointer_cast<PartInSpec>(part);
    COLLOPS_RETURN_IF_ERROR(Connect(device, handle));
    handle.reset();
    return Ok();
  }
  UniqueId id = {};
  COLLOPS_RETURN_IF_ERROR(ShareUniqueId(control, compares, *this, device, &id, &share_));
  std::shared_ptr<CommHandle> handle;
  COLLOPS_RETURN_IF_ERROR(
      CommHandle::FromUniqueId(api_, rank_, size_, id, InThread(device), UntilTimeout(), &handle));
  return Connect(device, std::move(handle));
}

}  // namespace collops::nccl
