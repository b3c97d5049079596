#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace collops {

// A process as the kernel tells it from every other one since boot: pids come back, with another
// start time.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
};

// The nearest ancestor of this process that runs under one of `names`, or whose environment, as it
// was when it started, lacks `variable`; so does one whose environment may not be read, which
// belongs to somebody else. A name is what the kernel keeps of it, at most 15 characters.
// False when there is none below init (pid 1 or the end of the pid namespace), which all share.
bool NearestAncestor(const std::vector<std::string>& names, const char* variable,
                     ProcessId* ancestor);

}  // namespace collops
