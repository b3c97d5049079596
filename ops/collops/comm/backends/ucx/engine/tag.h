#pragma once

#include <cstdint>

namespace collops::ucx {

// What a message of a stream is.
enum class TagKind : uint32_t { kData = 0, kCredit = 1, kHead = 2, kEnd = 3 };

// The tag of a message: 32 bits of the call's sequence, 14 of the sender's rank, 16 of the stream
// within the call, 2 of the kind. Two messages with the same tag arrive in the order in which they
// were sent.
struct Tag {
  uint64_t sequence = 0;
  int source = 0;
  int stream = 0;

  uint64_t Of(TagKind kind) const {
    return (sequence << 32) | (static_cast<uint64_t>(source) & 0x3fff) << 18 |
           (static_cast<uint64_t>(stream) & 0xffff) << 2 | static_cast<uint64_t>(kind);
  }
};

}  // namespace collops::ucx
