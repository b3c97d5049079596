#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collops::control {

// Where Linux says how much memory there is.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup = "/proc/self/cgroup";
  std::string mountinfo = "/proc/self/mountinfo";
};

// A memory cgroup that limits this process: of version 1 or 2, by its folder.
struct MemoryCgroup {
  int version = 2;
  std::string folder;
};

// This process's own memory cgroup and those around it, up to the mounted root; none where the
// files are missing.
std::vector<MemoryCgroup> FindMemoryCgroups(const MemoryFiles& files = {});

struct AvailableMemory {
  int64_t bytes = INT64_MAX;
  std::string where;  // for messages: "on this machine", or in which cgroup
};

// The least that the machine and every memory cgroup have left, file cache that can be given up
// included, swap space not: who takes more is killed instead of getting an error. What cannot be
// read limits nothing.
AvailableMemory FindAvailableMemory(const MemoryFiles& files = {});

}  // namespace collops::control
