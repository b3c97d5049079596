#pragma once

#include <cstdint>
#include <memory>

#include "comm/control/bootstrap/unique_fd.h"
#include "core/status.h"

namespace collops::control {

// Memory shared by the ranks of one host: a memfd, allocated up front and sealed in size, handed
// over a socket. It never has a name in a file system, so a crash at any instant leaves nothing
// behind. Copies share it; the last one unmaps it. A process maps a segment once, so ranks that are
// its threads see the same addresses. Waits for no one.
class Segment {
 public:
  Segment() = default;

  // Makes a zeroed segment of at least one byte.
  static Status Create(int64_t bytes, Segment* segment);

  // Maps a segment another rank made, after checking that it has this size and its seals.
  static Status Map(UniqueFd fd, int64_t bytes, Segment* segment);

  void* data() const;
  int64_t bytes() const;
  int fd() const;  // of a segment that this process made

 private:
  class Mapping;
  struct Mappings;
  static Status Adopt(UniqueFd fd, int64_t bytes, bool keep_open, Segment* segment);

  std::shared_ptr<Mapping> mapping_;
};

}  // namespace collops::control
