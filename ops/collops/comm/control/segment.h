#pragma once

#include <cstdint>
#include <memory>

#include "collops/comm/control/bootstrap/unique_fd.h"
#include "collops/core/status.h"

namespace collops::control {

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
  class Mapping;
  struct Mappings;
  static Status Adopt(UniqueFd fd, int64_t bytes, bool keep_open, Segment* segment);

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace collops::control
