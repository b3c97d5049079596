#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace collops {

// Identifies a process since boot: a pid may be used again, but with another start time.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;
};

// The nearest ancestor of this process that has one of `names`, or whose environment at its start
// lacked `variable`, or cannot be read because it belongs to another user. A name is the kernel's,
// at most 15 characters. False if there is none below init (pid 1 or the end of the pid namespace),
// which all processes share.
bool NearestAncestor(const std::vector<std::string>& names, const char* variable,
                     ProcessId* ancestor);

}  // namespace collops
