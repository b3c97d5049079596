#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collops {

// The files from which this process's cgroups are read.
struct CgroupFiles {
  std::string cgroup = "/proc/self/cgroup";
  std::string mountinfo = "/proc/self/mountinfo";
};

// A cgroup (version 1 or 2) that limits this process, named by its folder.
struct Cgroup {
  int version = 2;
  std::string folder;
};

// The cgroup of this process and its parents, up to the mounted root, of a controller: "memory" or
// "cpu". Empty where the files do not exist.
std::vector<Cgroup> FindCgroups(const std::string& controller, const CgroupFiles& files = {});

// How many cores' time this process may use.
struct UsableCores {
  int count = 1;
  std::string cgroup;  // the folder of the cgroup whose quota is below the affinity mask, or empty
};

// The smaller of the affinity mask and the CPU quota of every cgroup on the path, rounded up. A
// file that cannot be read sets no limit.
UsableCores FindUsableCores(const CgroupFiles& files = {});

}  // namespace collops
