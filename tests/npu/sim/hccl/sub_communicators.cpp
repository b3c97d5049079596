// Sub-communicators, and what else concerns configs, of a simulated libhccl.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "acl.h"
#include "communicator.h"
#include "config.h"
#include "request.h"

using collops_sim::Communicator;
using collops_sim::Config;
using collops_sim::Refuse;

namespace {

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
    if (ids[i] >= size) return Refuse(collops_sim::kBadParameter, "rankIds has no rank of comm");
    if (i > 0 && ids[i] <= ids[i - 1]) {
      return Refuse(collops_sim::kBadParameter, "rankIds is not in ascending order");
    }
  }
  if (own >= ids.size() || ids[own] != static_cast<uint32_t>(parent.rank())) {
    return Refuse(collops_sim::kBadParameter, "subCommRankId is not the index of the own rank");
  }
  return collops_sim::kSuccess;
}

// All members gave the same: their first one has compared it. The name of the root, or empty.
std::string Agree(Communicator& parent, const std::vector<uint32_t>& ids, uint32_t own,
                  Agreement mine, int* code) {
  collops_sim::Mesh& mesh = parent.mesh();
  const double limit_s = collops_sim::ConnectS();
  const auto tell = [&](uint32_t rank, const Agreement& told) {
    return mesh.Tell(collops_sim::kHosts, static_cast<int>(rank), &told, sizeof(told), limit_s);
  };
  const auto hear = [&](uint32_t rank, Agreement* heard) {
    return mesh.Hear(collops_sim::kHosts, static_cast<int>(rank), heard, sizeof(*heard), limit_s);
  };
  Agreement answer = mine;
  bool is_heard = true;
  if (own != 0) {
    is_heard = tell(ids[0], mine) && hear(ids[0], &answer);
  } else {
    const std::string root = collops_sim::OpenRoot(mesh.host(), limit_s);
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
  *code = collops_sim::kSuccess;
  if (!is_heard) {
    *code = Refuse(collops_sim::kTimeout, "not all ranks of rankIds have come");
  } else if (answer.is_right == 0) {
    *code = Refuse(collops_sim::kBadParameter,
                   "the members differ in rankNum, rankIds, subCommId or config");
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
  code = collops_sim::Connect(made->mesh(), root, parent.mesh().host(), made->rank(), made->size(),
                              parent.device());
  if (code != collops_sim::kSuccess) return code;
  made->set_name(config.name[0] != '\0' ? config.name
                                        : parent.name() + "_sub_" + std::to_string(id));
  made->origin = Communicator::kSub;
  parent.sub_ids.insert(id);
  *result = collops_sim::Keep(made.release());
  return collops_sim::kSuccess;
}

}  // namespace

extern "C" {

int HcclCreateSubCommConfig(void** comm, uint32_t num, const uint32_t* rank_ids, uint64_t id,
                            uint32_t own, const Config* config, void** result) {
  if (const int code = collops_sim::MayRun("HcclCreateSubCommConfig")) return code;
  Communicator* parent = comm == nullptr ? nullptr : collops_sim::Find(*comm);
  if (parent == nullptr || result == nullptr) {
    return Refuse(collops_sim::kNullPointer, "no communicator, or no place for the new one");
  }
  if (rank_ids == nullptr) {
    *result = nullptr;
    if (id == kTakesNoPart) return collops_sim::kSuccess;
    return Refuse(collops_sim::kBadParameter, "rankIds is null, but subCommId is not 0xFFFFFFFF");
  }
  if (const int code = collops_sim::CheckConfig(config)) return code;
  if (const int code = collops_sim::CheckDevice(*parent)) return code;
  if (parent->origin == Communicator::kSub) {
    return Refuse(collops_sim::kNotSupported, "a sub-communicator is not split again");
  }
  if (num == 0 || num > static_cast<uint32_t>(parent->size())) {
    return Refuse(collops_sim::kBadParameter, "rankNum is out of range");
  }
  const std::vector<uint32_t> ids(rank_ids, rank_ids + num);
  if (const int code = CheckMembers(*parent, ids, own)) return code;
  if (parent->sub_ids.count(id) != 0) {
    return Refuse(collops_sim::kBadParameter, "subCommId was used already");
  }
  if (config->name[0] != '\0' && !parent->sub_names.insert(config->name).second) {
    return Refuse(collops_sim::kBadParameter, "hcclCommName was used already");
  }
  return Split(*parent, ids, id, own, *config, result);
}

uint32_t HcclGetCommConfigCapability() {
  return kNumCapabilities;
}
int HcclSetConfig(int, int) {
  return collops_sim::kSuccess;
}

const char* HcclGetErrorString(int code) {
  switch (code) {
    case collops_sim::kSuccess:
      return "no error";
    case collops_sim::kBadParameter:
      return "parameter error";
    case collops_sim::kNullPointer:
      return "empty pointer";
    case collops_sim::kInternal:
      return "internal error";
    case collops_sim::kNotSupported:
      return "feature not supported";
    case collops_sim::kNotAvailable:
      return "resource unavailable";
    case collops_sim::kTimeout:
      return "timeout";
    case collops_sim::kTcpConnect:
      return "tcp connect failure";
    case collops_sim::kRemote:
      return "remote error";
    default:
      return "unknown error";
  }
}

}  // extern "C"
