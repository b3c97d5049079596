// Communicators of a simulated libhccl, from its published signatures.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "acl.h"
#include "communicator.h"
#include "config.h"
#include "rank_table.h"
#include "request.h"

using collops_sim::CheckConfig;
using collops_sim::Communicator;
using collops_sim::Config;
using collops_sim::CurrentDevice;
using collops_sim::Find;
using collops_sim::Header;
using collops_sim::MayRun;
using collops_sim::RankTable;
using collops_sim::Refuse;

namespace {

constexpr size_t kRootInfoBytes = 4108;
constexpr int kDefaultPort = 60000;

// One communicator that is to be made.
struct Plan {
  std::string root;
  std::string host;
  std::string name;
  uint32_t rank;
  uint32_t size;
  Communicator::Origin origin;
  std::string table;
};

int Make(Plan plan, const Config* config, void** result) {
  const int device = CurrentDevice();
  if (device < 0) return Refuse(collops_sim::kInternal, "no device is set");
  if (result == nullptr) return Refuse(collops_sim::kNullPointer, "comm is null");
  if (plan.size == 0 || plan.rank >= plan.size) {
    return Refuse(collops_sim::kBadParameter, "rank out of range");
  }
  if (plan.size > Header::kMostRanks) {
    return Refuse(collops_sim::kNotSupported, "more than 16 ranks are not simulated");
  }
  if (config != nullptr && config->name[0] != '\0') plan.name = config->name;
  const auto is_namesake = [&](const Communicator& other) {
    return other.name() == plan.name && other.device() == device;
  };
  if (collops_sim::FindWhere(is_namesake) != nullptr) {
    return Refuse(collops_sim::kBadParameter, "a communicator has the name " + plan.name);
  }
  auto made = std::make_unique<Communicator>(static_cast<int>(plan.rank),
                                             static_cast<int>(plan.size), device);
  const int code =
      collops_sim::Connect(made->mesh(), plan.root, plan.host, made->rank(), made->size(), device);
  if (code != collops_sim::kSuccess) return code;
  made->set_name(plan.name);
  made->origin = plan.origin;
  made->table = plan.table;
  *result = collops_sim::Keep(made.release());
  return collops_sim::kSuccess;
}

int MakeOfRootInfo(uint32_t size, const void* root_info, uint32_t rank, const Config* config,
                   void** result) {
  if (root_info == nullptr) return Refuse(collops_sim::kNullPointer, "rootInfo is null");
  const auto is_of_table = [](const Communicator& other) {
    return other.origin == Communicator::kRankTable;
  };
  if (collops_sim::FindWhere(is_of_table) != nullptr) {
    return Refuse(collops_sim::kBadParameter,
                  "this process has a communicator of a rank table; root infos do not mix with it");
  }
  const std::string root = static_cast<const char*>(root_info);
  return Make({root, collops_sim::HostAddress(), root, rank, size, Communicator::kRootInfo, ""},
              config, result);
}

// Where the ranks of a table meet: at an address of rank 0's server if that is told apart by an
// address, and else on this host.
int FindPlace(const RankTable& table, uint32_t rank, Plan* plan) {
  const std::string& first = table.hosts[table.ranks[0].server];
  const std::string& own = table.hosts[table.ranks[rank].server];
  plan->host = collops_sim::HostAddress();
  if (plan->host.empty() && table.hosts.size() > 1 && !first.empty()) plan->host = own;
  plan->root = "collops-sim-table-" + table.digest;
  if (!plan->host.empty()) {
    const char* const port = std::getenv("HCCL_IF_BASE_PORT");
    plan->root = (first.empty() ? plan->host : first) + ":" +
                 (port == nullptr ? std::to_string(kDefaultPort) : port);
  }
  if (rank != 0 || collops_sim::OpenRootAt(plan->root, collops_sim::ConnectS()))
    return collops_sim::kSuccess;
  return Refuse(collops_sim::kTcpConnect, plan->root + " is taken, or no address of this host");
}

int MakeOfTable(const char* path, uint32_t rank, const Config* config, void** result) {
  if (path == nullptr) return Refuse(collops_sim::kNullPointer, "clusterInfo is null");
  if (CurrentDevice() < 0) return Refuse(collops_sim::kInternal, "no device is set");
  RankTable table;
  if (const int code = table.Read(path)) return code;
  if (rank >= table.ranks.size()) {
    return Refuse(collops_sim::kBadParameter, "the rank table has no such rank");
  }
  if (table.ranks[rank].device != CurrentDevice()) {
    return Refuse(collops_sim::kNotAvailable,
                  "EI0014: the rank table has device " + std::to_string(table.ranks[rank].device) +
                      " for this rank, but the thread's is " + std::to_string(CurrentDevice()));
  }
  const auto is_same = [&](const Communicator& other) {
    return other.table == table.digest && other.rank() == static_cast<int>(rank);
  };
  if (collops_sim::FindWhere(is_same) != nullptr) {
    return Refuse(collops_sim::kBadParameter, "this rank has a communicator of this rank table");
  }
  Plan plan{"",
            "",
            "hccl_world_group",
            rank,
            static_cast<uint32_t>(table.ranks.size()),
            Communicator::kRankTable,
            table.digest};
  if (const int code = FindPlace(table, rank, &plan)) return code;
  return Make(plan, config, result);
}

}  // namespace

extern "C" {

int HcclGetRootInfo(void* root_info) {
  if (const int code = MayRun("HcclGetRootInfo")) return code;
  if (root_info == nullptr) return Refuse(collops_sim::kNullPointer, "rootInfo is null");
  if (CurrentDevice() < 0) return Refuse(collops_sim::kInternal, "no device is set");
  const std::string name =
      collops_sim::OpenRoot(collops_sim::HostAddress(), collops_sim::ConnectS());
  std::memset(root_info, 0, kRootInfoBytes);
  std::memcpy(root_info, name.data(), name.size());
  return collops_sim::kSuccess;
}
int HcclCommInitRootInfo(uint32_t size, const void* root_info, uint32_t rank, void** comm) {
  if (const int code = MayRun("HcclCommInitRootInfo")) return code;
  return MakeOfRootInfo(size, root_info, rank, nullptr, comm);
}
int HcclCommInitRootInfoConfig(uint32_t size, const void* root_info, uint32_t rank,
                               const Config* config, void** comm) {
  if (const int code = MayRun("HcclCommInitRootInfoConfig")) return code;
  if (const int code = CheckConfig(config)) return code;
  return MakeOfRootInfo(size, root_info, rank, config, comm);
}
int HcclCommInitClusterInfo(const char* table, uint32_t rank, void** comm) {
  if (const int code = MayRun("HcclCommInitClusterInfo")) return code;
  return MakeOfTable(table, rank, nullptr, comm);
}
int HcclCommInitClusterInfoConfig(const char* table, uint32_t rank, const Config* config,
                                  void** comm) {
  if (const int code = MayRun("HcclCommInitClusterInfoConfig")) return code;
  if (const int code = CheckConfig(config)) return code;
  return MakeOfTable(table, rank, config, comm);
}
// Leaves the communicator's memory to what its streams may still do.
int HcclCommDestroy(void* comm) {
  if (const int code = MayRun("HcclCommDestroy")) return code;
  Communicator* communicator = Find(comm);
  if (communicator == nullptr) return Refuse(collops_sim::kBadParameter, "destroyed twice");
  if (const int code = CheckDevice(*communicator)) return code;
  collops_sim::Forget(communicator);
  communicator->mesh().Close();
  return collops_sim::kSuccess;
}

int HcclGetRankSize(void* comm, uint32_t* size) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  *size = static_cast<uint32_t>(communicator->size());
  return collops_sim::kSuccess;
}
int HcclGetRankId(void* comm, uint32_t* rank) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  *rank = static_cast<uint32_t>(communicator->rank());
  return collops_sim::kSuccess;
}
int HcclGetCommName(void* comm, char* name) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  std::strcpy(name, communicator->name().c_str());
  return collops_sim::kSuccess;
}
int HcclGetCommAsyncError(void* comm, int* error) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return collops_sim::kBadParameter;
  *error = communicator->error();
  return collops_sim::kSuccess;
}
// For tests: how many communicators this process has.
int SimLiveCommunicators() {
  return collops_sim::NumLive();
}

}  // extern "C"
