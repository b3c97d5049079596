#pragma once

#include <string>

#include "collops/comm/backends/hccl/library/api.h"

namespace collops::hccl {

// Which of the two V calls this library and this SoC have. All ranks of a group use what all have.
struct Abilities {
  bool all_gather_v = true;
  bool reduce_scatter_v = true;
  std::string why_not;  // the reason if one is missing
};

// `several_servers`: whether the group is known to be on more than one.
Abilities AbilitiesOf(const Api& api, bool several_servers);

// Writes to standard error, once per process, that calls are replaced, and why.
void WarnOfReplacement(const Abilities& abilities);

}  // namespace collops::hccl
