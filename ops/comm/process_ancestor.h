#pragma once

#include <sys/types.h>

#include <cstdint>

namespace collops {

// A process as the kernel tells it from every other one since boot: pids come back, with another
// start time.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
};

// The nearest ancestor of this process whose environment, as it was when it started, lacks
// `variable`; so does one whose environment may not be read, which belongs to somebody else.
// False when there is none below init (pid 1 or the end of the pid namespace), which all share.
bool NearestAncestorWithout(const char* variable, ProcessId* ancestor);

}  // namespace collops
