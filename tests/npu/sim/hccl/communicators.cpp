// Communicators, their configs and their parts, of a simulated libhccl, from its published
// signatures.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "acl.h"
#include "communicator.h"
#include "rank_table.h"
#include "request.h"

using namespace collops_sim;

namespace {

// HcclCommConfig, as version 10 of it lies in memory.
struct Config {
  static constexpr uint32_t kMagic = 0xf0f0f0f0;
  static constexpr uint32_t kNotSet = 0xffffffff;

  size_t size;
  uint32_t magic;
  uint32_t version;
  uint64_t reserved;
  uint32_t buffer_size;  // in MB
  uint32_t deterministic;
  char name[128];
  char udi[128];
  uint32_t expansion_mode;
  uint32_t traffic_class;
  uint32_t service_level;
  uint32_t world_rank;
  uint64_t job;
  uint8_t zero_copy;
  int32_t execute_timeout;
  char algorithm[1600];
  char retry_enable[50];
  char retry_parameters[128];
  char buffer_name[128];
  uint32_t qos;
  uint64_t window_size;
};
static_assert(offsetof(Config, buffer_size) == 24);
static_assert(offsetof(Config, name) == 32);

// kSuccess, or why HCCL would refuse it. HCCL takes every size and version: it only warns of those
// that are not its own, and leaves out what it does not know.
int CheckConfig(const Config* config) {
  constexpr uint32_t kMostDeterministic = 2;  // "strict"
  if (config == nullptr) return Refuse(kNullPointer, "the config is null");
  if (config->magic != Config::kMagic) {
    return Refuse(kBadParameter, "the config was not initialised: another magic word");
  }
  if (config->buffer_size == 0) return Refuse(kBadParameter, "hcclBufferSize is 0");
  if (config->deterministic != Config::kNotSet && config->deterministic > kMostDeterministic) {
    return Refuse(kBadParameter, "there is no such hcclDeterministic");
  }
  if (std::memchr(config->name, '\0', sizeof(config->name)) == nullptr) {
    return Refuse(kBadParameter, "hcclCommName is too long");
  }
  return kSuccess;
}

// Equal for configs that are.
uint64_t DigestOf(const Config& config) {
  return std::hash<std::string>()(std::to_string(config.buffer_size) + "," +
                                  std::to_string(config.deterministic) + "," + config.name);
}

// Of one of a communicator's two buffers: the config's, HCCL_BUFFSIZE, or HCCL's default.
uint32_t BufferMb(const Config* config) {
  constexpr uint32_t kDefaultMb = 200;
  if (config != nullptr && config->buffer_size != Config::kNotSet) return config->buffer_size;
  const char* const text = std::getenv("HCCL_BUFFSIZE");
  return text == nullptr ? kDefaultMb : static_cast<uint32_t>(std::atoi(text));
}

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
};

int Make(Plan plan, const Config* config, void** result) {
  const int device = CurrentDevice();
  if (device < 0) return Refuse(kInternal, "no device is set");
  if (result == nullptr) return Refuse(kNullPointer, "comm is null");
  if (plan.size == 0 || plan.rank >= plan.size) {
    return Refuse(kBadParameter, "rank out of range");
  }
  if (plan.size > Header::kMostRanks) {
    return Refuse(kNotSupported, "more than 16 ranks are not simulated");
  }
  if (config != nullptr && config->name[0] != '\0') plan.name = config->name;
  const auto is_namesake = [&](const Communicator& other) {
    return other.name() == plan.name && other.device() == device;
  };
  if (FindWhere(is_namesake) != nullptr) {
    return Refuse(kBadParameter, "a communicator has the name " + plan.name);
  }
  auto made = std::make_unique<Communicator>(static_cast<int>(plan.rank),
                                             static_cast<int>(plan.size), device);
  const int code = Connect(made->mesh(), plan.root, plan.host, made->rank(), made->size(), device);
  if (code != kSuccess) return code;
  made->set_name(plan.name);
  made->origin = plan.origin;
  made->buffer_mb = BufferMb(config);
  *result = Keep(made.release());
  return kSuccess;
}

int MakeOfRootInfo(uint32_t size, const void* root_info, uint32_t rank, const Config* config,
                   void** result) {
  if (root_info == nullptr) return Refuse(kNullPointer, "rootInfo is null");
  const std::string root = static_cast<const char*>(root_info);
  return Make({root, HostAddress(), root, rank, size, Communicator::kRootInfo}, config, result);
}

// Where the ranks of a table meet: at an address of rank 0's server if that is told apart by an
// address, and else on this host.
int FindPlace(const RankTable& table, uint32_t rank, Plan* plan) {
  const std::string& first = table.hosts[table.ranks[0].server];
  const std::string& own = table.hosts[table.ranks[rank].server];
  plan->host = HostAddress();
  if (plan->host.empty() && table.hosts.size() > 1 && !first.empty()) plan->host = own;
  plan->root = "collops-sim-table-" + table.digest;
  if (!plan->host.empty()) {
    const char* const port = std::getenv("HCCL_IF_BASE_PORT");
    plan->root = (first.empty() ? plan->host : first) + ":" +
                 (port == nullptr ? std::to_string(kDefaultPort) : port);
  }
  if (rank != 0 || OpenRootAt(plan->root, ConnectS())) return kSuccess;
  return Refuse(kTcpConnect, plan->root + " is taken, or no address of this host");
}

int MakeOfTable(const char* path, uint32_t rank, const Config* config, void** result) {
  if (path == nullptr) return Refuse(kNullPointer, "clusterInfo is null");
  if (CurrentDevice() < 0) return Refuse(kInternal, "no device is set");
  RankTable table;
  if (const int code = table.Load(path)) return code;
  const auto is_of_table = [](const Communicator& other) {
    return other.origin == Communicator::kRankTable && other.device() == CurrentDevice();
  };
  if (FindWhere(is_of_table) != nullptr) {
    return Refuse(kNotAvailable, "op_base hccl multiple initialization");
  }
  if (const int code = table.Read(rank, PhysicalDevice(CurrentDevice()))) return code;
  Plan plan{"",
            "",
            "hccl_world_group",
            rank,
            static_cast<uint32_t>(table.ranks.size()),
            Communicator::kRankTable};
  if (const int code = FindPlace(table, rank, &plan)) return code;
  return Make(plan, config, result);
}

constexpr uint64_t kTakesNoPart = 0xFFFFFFFF;
constexpr uint32_t kNumCapabilities = 12;  // HCCL_COMM_CONFIG_RESERVED of version 10

// What the members tell their first one, and what it answers.
struct Agreement {
  uint64_t digest = 0;
  int32_t is_right = 0;
  char root[64] = {};
};

int CheckMembers(const Communicator& parent, const std::vector<uint32_t>& ids, uint32_t own) {
  const auto size = static_cast<uint32_t>(parent.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= size) return Refuse(kBadParameter, "rankIds has no rank of comm");
    if (i > 0 && ids[i] <= ids[i - 1]) {
      return Refuse(kBadParameter, "rankIds is not in ascending order");
    }
  }
  if (own >= ids.size() || ids[own] != static_cast<uint32_t>(parent.rank())) {
    return Refuse(kBadParameter, "subCommRankId is not the index of the own rank");
  }
  return kSuccess;
}

// All members gave the same: their first one has compared it. The name of the root, or empty.
std::string Agree(Communicator& parent, const std::vector<uint32_t>& ids, uint32_t own,
                  Agreement mine, int* code) {
  Mesh& mesh = parent.mesh();
  const double limit_s = ConnectS();
  const auto tell = [&](uint32_t rank, const Agreement& told) {
    return mesh.Tell(kHosts, static_cast<int>(rank), &told, sizeof(told), limit_s);
  };
  const auto hear = [&](uint32_t rank, Agreement* heard) {
    return mesh.Hear(kHosts, static_cast<int>(rank), heard, sizeof(*heard), limit_s);
  };
  Agreement answer = mine;
  bool is_heard = true;
  if (own != 0) {
    is_heard = tell(ids[0], mine) && hear(ids[0], &answer);
  } else {
    const std::string root = OpenRoot(mesh.host(), limit_s);
    root.copy(answer.root, sizeof(answer.root) - 1);
    answer.is_right = 1;
    for (size_t i = 1; i < ids.size(); ++i) {
      Agreement theirs;
      is_heard = is_heard && hear(ids[i], &theirs);
      if (theirs.digest != mine.digest) answer.is_right = 0;
    }
    for (size_t i = 1; i < ids.size(); ++i) {
      is_heard = tell(ids[i], answer) && is_heard;
    }
  }
  *code = kSuccess;
  if (!is_heard) {
    *code = Refuse(kTimeout, "not all ranks of rankIds have come");
  } else if (answer.is_right == 0) {
    *code = Refuse(kBadParameter, "the members differ in rankNum, rankIds, subCommId or config");
  }
  return answer.root;
}

int Split(Communicator& parent, const std::vector<uint32_t>& ids, uint64_t id, uint32_t own,
          const Config& config, void** result) {
  std::string given = std::to_string(id) + "," + std::to_string(DigestOf(config));
  for (const uint32_t rank : ids) given += "," + std::to_string(rank);
  int code = 0;
  const std::string root = Agree(parent, ids, own, {std::hash<std::string>()(given), 0, {}}, &code);
  if (code != 0) return code;
  auto made = std::make_unique<Communicator>(static_cast<int>(own), static_cast<int>(ids.size()),
                                             parent.device());
  code = Connect(made->mesh(), root, parent.mesh().host(), made->rank(), made->size(),
                 parent.device());
  if (code != kSuccess) return code;
  made->set_name(config.name[0] != '\0' ? config.name
                                        : parent.name() + "_sub_" + std::to_string(id));
  made->origin = Communicator::kSub;
  made->buffer_mb = BufferMb(&config);
  parent.sub_ids.insert(id);
  *result = Keep(made.release());
  return kSuccess;
}

}  // namespace

extern "C" {

int HcclGetRootInfo(void* root_info) {
  if (const int code = MayRun("HcclGetRootInfo")) return code;
  if (root_info == nullptr) return Refuse(kNullPointer, "rootInfo is null");
  if (CurrentDevice() < 0) return Refuse(kInternal, "no device is set");
  const std::string name = OpenRoot(HostAddress(), ConnectS());
  std::memset(root_info, 0, kRootInfoBytes);
  std::memcpy(root_info, name.data(), name.size());
  return kSuccess;
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
  if (communicator == nullptr) return Refuse(kBadParameter, "destroyed twice");
  if (const int code = CheckDevice(*communicator)) return code;
  Forget(communicator);
  communicator->mesh().Close();
  return kSuccess;
}

int HcclGetRankSize(void* comm, uint32_t* size) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return kBadParameter;
  *size = static_cast<uint32_t>(communicator->size());
  return kSuccess;
}
int HcclGetRankId(void* comm, uint32_t* rank) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return kBadParameter;
  *rank = static_cast<uint32_t>(communicator->rank());
  return kSuccess;
}
int HcclGetCommName(void* comm, char* name) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return kBadParameter;
  std::strcpy(name, communicator->name().c_str());
  return kSuccess;
}
int HcclGetCommAsyncError(void* comm, int* error) {
  const Communicator* communicator = Find(comm);
  if (communicator == nullptr) return kBadParameter;
  *error = communicator->error();
  return kSuccess;
}
int HcclCreateSubCommConfig(void** comm, uint32_t num, const uint32_t* rank_ids, uint64_t id,
                            uint32_t own, const Config* config, void** result) {
  if (const int code = MayRun("HcclCreateSubCommConfig")) return code;
  Communicator* parent = comm == nullptr ? nullptr : Find(*comm);
  if (parent == nullptr || result == nullptr) {
    return Refuse(kNullPointer, "no communicator, or no place for the new one");
  }
  if (rank_ids == nullptr) {
    *result = nullptr;
    if (id == kTakesNoPart) return kSuccess;
    return Refuse(kBadParameter, "rankIds is null, but subCommId is not 0xFFFFFFFF");
  }
  if (const int code = CheckConfig(config)) return code;
  if (const int code = CheckDevice(*parent)) return code;
  if (parent->origin == Communicator::kSub) {
    return Refuse(kNotSupported, "a sub-communicator is not split again");
  }
  if (num == 0 || num > static_cast<uint32_t>(parent->size())) {
    return Refuse(kBadParameter, "rankNum is out of range");
  }
  const std::vector<uint32_t> ids(rank_ids, rank_ids + num);
  if (const int code = CheckMembers(*parent, ids, own)) return code;
  if (parent->sub_ids.count(id) != 0) {
    return Refuse(kBadParameter, "subCommId was used already");
  }
  if (config->name[0] != '\0' && !parent->sub_names.insert(config->name).second) {
    return Refuse(kBadParameter, "hcclCommName was used already");
  }
  return Split(*parent, ids, id, own, *config, result);
}

uint32_t HcclGetCommConfigCapability() {
  return kNumCapabilities;
}
int HcclSetConfig(int, int) {
  return kSuccess;
}

const char* HcclGetErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kBadParameter:
      return "parameter error";
    case kNullPointer:
      return "empty pointer";
    case kInternal:
      return "internal error";
    case kNotSupported:
      return "feature not supported";
    case kNotAvailable:
      return "resource unavailable";
    case kTimeout:
      return "timeout";
    case kTcpConnect:
      return "tcp connect failure";
    case kRemote:
      return "remote error";
    default:
      return "unknown error";
  }
}

// For tests: how many communicators this process has.
int SimLiveCommunicators() {
  return NumLive();
}
// For tests: the megabytes of their buffers.
int SimBufferMb() {
  uint32_t sum = 0;
  FindWhere([&](const Communicator& one) {
    sum += 2 * one.buffer_mb;
    return false;
  });
  return static_cast<int>(sum);
}

}  // extern "C"
