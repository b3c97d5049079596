#pragma once

#include <algorithm>
#include <cstdint>

namespace collops::ucx {

// The most chunks of one stream that are under way at once.
constexpr int64_t kDepth = 4;

// UCX cuts a longer message into fragments, and calls it sent while the last one may be in a buffer
// of its own, which only this rank's progress empties. Of a message that is one fragment it says so
// once the system has all of it. A fragment has 8 KiB over TCP, and is never shorter than this.
constexpr int64_t kFragmentBytes = 6 << 10;

// How a stream of `bytes` is cut; the same on both sides.
struct Chunking {
  int64_t bytes = 0;
  int64_t chunk_bytes = 256 << 10;
  // Chunks that the sender may send before it has heard from the receiver.
  int64_t free_chunks = 0;

  int64_t count() const { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  int64_t BytesOf(int64_t chunk) const {
    return std::min(chunk_bytes, bytes - chunk * chunk_bytes);
  }
  // An empty message follows the last chunk: once it is sent, the chunk needs its sender no more.
  bool has_end() const { return bytes > 0 && BytesOf(count() - 1) > kFragmentBytes; }
  // From the sender: chunks, and the end.
  int64_t messages() const { return count() + (has_end() ? 1 : 0); }
};

}  // namespace collops::ucx
