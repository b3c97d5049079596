#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collops/comm/control/descriptor.h"
#include "collops/core/process/cgroups.h"
#include "collops/core/status.h"

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

// Memory shared by the ranks of one host: a memfd, allocated up front and sealed in size, sent over
// a socket. It has no name in a file system, so a crash at any time leaves nothing behind. Copies
// share the mapping; the last one unmaps it. A process maps a segment once, so ranks that are its
// threads see the same addresses. Waits for no one.
class Segment {
 public:
  Segment() = default;

  // Creates a zeroed segment of at least one byte.
  static Status Create(int64_t bytes, Segment* segment);

  // Maps a segment that another rank created, after checking its size and its seals.
  static Status Map(UniqueFd fd, int64_t bytes, Segment* segment);

  void* data() const;
  int64_t bytes() const;
  int fd() const;  // valid in the process that created the segment

 private:
  struct Mapping;
  struct Mappings;
  static Status Adopt(UniqueFd fd, int64_t bytes, bool keep_open, Segment* segment);

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace collops::control
