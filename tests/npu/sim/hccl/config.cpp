#include "config.h"

#include <cstring>
#include <functional>
#include <string>

#include "acl.h"
#include "communicator.h"

namespace collops_sim {

static_assert(offsetof(Config, buffer_size) == 24);
static_assert(offsetof(Config, name) == 32);

int CheckConfig(const Config* config) {
  constexpr uint32_t kMostDeterministic = 2;  // "strict"
  if (config == nullptr) return Refuse(kNullPointer, "the config is null");
  if (config->magic != Config::kMagic) {
    return Refuse(kBadParameter, "the config was not initialised: another magic word");
  }
  if (config->version == 0 || config->version > Config::kVersion) {
    return Refuse(kBadParameter, "there is no such version of the config");
  }
  if (config->version == Config::kVersion && config->size != sizeof(Config)) {
    return Refuse(kBadParameter, "the config's size is not that of its version");
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

uint64_t DigestOf(const Config& config) {
  return std::hash<std::string>()(std::to_string(config.buffer_size) + "," +
                                  std::to_string(config.deterministic) + "," + config.name);
}

}  // namespace collops_sim
