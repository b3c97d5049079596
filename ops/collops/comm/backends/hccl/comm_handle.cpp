#include "collops/comm/backends/hccl/comm_handle.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "collops/comm/backends/hccl/library/device_scope.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/core/process/per_process.h"

namespace collops::hccl {
namespace {

// Of communicators of the caller, which may be passed in again. The names have theirs inside.
PerProcess<PartNames> names_of_callers;

// The end of a name that does not fit would be lost, and with it what tells two names apart.
std::string Shortened(const std::string& name) {
  constexpr size_t kMost = kCommNameBytes - 1;
  constexpr size_t kHashDigits = 20;
  if (name.size() <= kMost) return name;
  return Concat(name.substr(0, kMost - kHashDigits - 1), "~", std::hash<std::string>()(name));
}

// Every field as HCCL's own initialisation leaves it, and the name.
CommConfig ConfigOf(const std::string& name) {
  CommConfig config = {};
  config.size = sizeof(CommConfig);
  config.magic = kConfigMagic;
  config.version = kConfigVersion;
  config.buffer_size = kConfigNotSet;
  config.deterministic = kConfigNotSet;
  config.rdma_traffic_class = kConfigNotSet;
  config.rdma_service_level = kConfigNotSet;
  config.execution_timeout = static_cast<int32_t>(kConfigNotSet);
  config.qos = kConfigNotSet;
  config.symmetric_window_bytes = kDefaultSymmetricWindow;
  Shortened(name).copy(config.name, kCommNameBytes - 1);
  return config;
}

// A name that is equal on all ranks of the group, for HCCL's logs and profiles.
std::string NameOf(const RootInfo& root_info) {
  const std::string bytes(root_info.internal, kRootInfoBytes);
  return Concat("collops_", std::hash<std::string>()(bytes));
}

}  // namespace

std::string PartNames::Fresh(uint32_t rank, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int before = counts_[{rank, name}]++;
  return before == 0 ? name : Concat(name, " again ", before);
}

std::vector<int> AllRanks(int rank_size) {
  std::vector<int> ranks(static_cast<size_t>(rank_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Status CommHandle::FromRootInfo(const Api& api, int device, int rank, int rank_size,
                                const RootInfo& root_info, std::shared_ptr<CommHandle>* handle) {
  Comm made = nullptr;
  const auto size = static_cast<uint32_t>(rank_size);
  const auto own = static_cast<uint32_t>(rank);
  if (api.comm_init_root_info_config != nullptr) {
    const CommConfig config = ConfigOf(NameOf(root_info));
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(api, api.comm_init_root_info_config(size, &root_info, own, &config, &made),
                 "HcclCommInitRootInfoConfig"));
  } else {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.comm_init_root_info(size, &root_info, own, &made),
                                     "HcclCommInitRootInfo"));
  }
  handle->reset(new CommHandle(api, device, made, true));
  (*handle)->ranks_ = AllRanks(rank_size);
  return Ok();
}

Status CommHandle::FromRankTable(const Api& api, int device, int rank, int rank_size,
                                 const std::string& path, std::shared_ptr<CommHandle>* handle) {
  COLLOPS_CHECK_ARG(
      api.comm_init_cluster_info != nullptr, ERROR_UNSUPPORTED,
      "backend hccl: this libhccl.so has no HcclCommInitClusterInfo, which takes rank tables");
  Comm made = nullptr;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.comm_init_cluster_info(path.c_str(), static_cast<uint32_t>(rank), &made),
               "HcclCommInitClusterInfo"));
  handle->reset(new CommHandle(api, device, made, true));
  (*handle)->ranks_ = AllRanks(rank_size);
  (*handle)->from_table_ = true;
  return Ok();
}

std::shared_ptr<CommHandle> CommHandle::OfCaller(const Api& api, int rank_size, Comm comm) {
  std::shared_ptr<CommHandle> handle(new CommHandle(api, -1, comm, false));
  handle->ranks_ = AllRanks(rank_size);
  handle->is_callers_ = true;
  return handle;
}

Status CommHandle::Split(const std::shared_ptr<CommHandle>& from, const std::vector<int>& members,
                         int index, const std::string& name, std::shared_ptr<CommHandle>* part) {
  const Api& api = from->api_;
  COLLOPS_CHECK_ARG(
      api.create_sub_comm != nullptr, ERROR_UNSUPPORTED,
      "backend hccl: this libhccl.so has no HcclCreateSubCommConfig, which makes subgroups");
  const std::shared_ptr<CommHandle>& whole = from->whole_ == nullptr ? from : from->whole_;
  std::vector<int> ranks;
  std::vector<uint32_t> numbers;
  for (const int member : members) {
    ranks.push_back(from->ranks_[static_cast<size_t>(member)]);
    numbers.push_back(static_cast<uint32_t>(ranks.back()));
  }
  COLLOPS_CHECK_ARG(
      std::is_sorted(numbers.begin(), numbers.end()), ERROR_UNSUPPORTED,
      "backend hccl: a subgroup of HCCL has the order of the group that it is split off: use ",
      "keys that keep it");
  const bool takes_part = index >= 0;
  Comm whole_comm = whole->comm_;
  PartNames& names = whole->is_callers_ ? names_of_callers.Get() : whole->names_;
  const std::string fresh =
      takes_part ? names.Fresh(numbers[static_cast<size_t>(index)], name) : name;
  CommConfig config = ConfigOf(fresh);
  const uint64_t id = takes_part ? std::hash<std::string>()(fresh) >> 33 : kNoSubComm;
  Comm made = nullptr;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api,
               api.create_sub_comm(&whole_comm, static_cast<uint32_t>(numbers.size()),
                                   takes_part ? numbers.data() : nullptr, id,
                                   takes_part ? static_cast<uint32_t>(index) : 0, &config, &made),
               "HcclCreateSubCommConfig"));
  if (!takes_part) return Ok();
  int32_t device = -1;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.get_device(&device), "aclrtGetDevice"));
  part->reset(new CommHandle(api, device, made, true));
  (*part)->whole_ = whole;
  (*part)->ranks_ = std::move(ranks);
  return Ok();
}

CommHandle::~CommHandle() {
  if (!owned_) return;
  const DeviceScope scope(api_, device_);
  // The caller cannot act on an error of this call.
  if (scope.status().ok()) static_cast<void>(api_.comm_destroy(comm_));
}

}  // namespace collops::hccl
