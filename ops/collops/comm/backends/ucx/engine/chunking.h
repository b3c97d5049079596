#pragma once

#include <algorithm>
#include <cstdint>

namespace collops::ucx {

// The most chunks of one stream that are under way at once.
constexpr int64_t kDepth = 4;

// UCX cuts a longer message into fragments. One has 8 KiB over TCP, and is never shorter than this.
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
  // From the sender: chunks, and an empty message by which a last one of several fragments is
  // handed over (SendDone); over a connection that is full, also a shorter one.
  int64_t messages() const {
    return count() + (bytes > 0 && BytesOf(count() - 1) > kFragmentBytes ? 1 : 0);
  }
};

}  // namespace collops::ucx
