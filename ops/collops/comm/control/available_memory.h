#pragma once

#include <cstdint>
#include <string>

#include "collops/core/process/cgroups.h"

namespace collops::control {

// The files from which Linux's free memory and this process's cgroups are read.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  CgroupFiles cgroups;
};

struct AvailableMemory {
  int64_t bytes = INT64_MAX;
  std::string where;  // for messages: "on this machine", or in which cgroup
};

// The smallest amount that the machine and every memory cgroup have left. It counts file cache that
// the kernel can drop, but no swap space: a process that takes more is killed, it gets no error. A
// file that cannot be read sets no limit.
AvailableMemory FindAvailableMemory(const MemoryFiles& files = {});

}  // namespace collops::control
