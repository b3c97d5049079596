#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/core/process/cgroups.h"
#include "collops/core/process/cpu_place.h"
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

// What lies where in a segment: areas in which each rank has a part of equal size, one after the
// other. A rank writes its parts most.
struct SegmentShape {
  struct Area {
    int64_t begin = 0;
    int64_t rank_bytes = 0;
  };

  SegmentShape(int64_t all_bytes) : bytes(all_bytes) {}  // NOLINT: without areas
  SegmentShape(int64_t all_bytes, std::vector<Area> all)
      : bytes(all_bytes), areas(std::move(all)) {}

  // Puts another memory behind this one.
  void Append(const SegmentShape& behind) {
    for (const Area& area : behind.areas) areas.push_back({bytes + area.begin, area.rank_bytes});
    bytes += behind.bytes;
  }

  int64_t bytes;
  std::vector<Area> areas;
};

// Memory shared by the ranks of one host: a memfd, allocated up front and sealed in size, sent over
// a socket. It has no name in a file system, so a crash at any time leaves nothing behind. Copies
// share the mapping; the last one unmaps it. A process maps a segment once, so ranks that are its
// threads see the same addresses. Waits for no one.
class Segment {
 public:
  Segment() = default;

  // Creates a zeroed segment of at least one byte.
  static Status Create(int64_t bytes, Segment* segment) { return Create(bytes, {}, segment); }
  // As above. `places`: where each rank runs; its parts are allocated on its NUMA node, which is
  // that of the core that asks for them.
  static Status Create(const SegmentShape& shape, const std::vector<CpuPlace>& places,
                       Segment* segment);

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
