#pragma once

#include <cstdint>

#include "collops/comm/backends/ucx/engine/chunking.h"
#include "collops/comm/backends/ucx/host_map.h"

namespace collops::ucx {

// Longer streams are cut into chunks of this size, and rings have so many of them.
constexpr int64_t kStreamChunkBytes = 256 << 10;
constexpr int64_t kStreamSlots = kDepth;
// So many bytes travel with the head of a step, in one message with it.
constexpr int64_t kMostHeadBytes = 4096;

// Bytes of one call that cross from a rank to a rank of another host: one stream, or a part of the
// message with the head.
struct Transfer {
  int from = 0;
  int to = 0;
  int number = 0;     // tells apart the streams from one rank to another
  int owner = 0;      // the rank whose block it is of, or for whom a slice is
  int64_t begin = 0;  // elements [begin, begin + count) of the block or slice
  int64_t count = 0;
  bool with_head = false;
};

// Whether so many bytes travel with the head that `from` sends to `to`, if it sends one.
inline bool TravelWithHead(const HostMap& hosts, int from, int to, int64_t bytes) {
  return bytes > 0 && bytes <= kMostHeadBytes && hosts.Speaks(from, to);
}

}  // namespace collops::ucx
