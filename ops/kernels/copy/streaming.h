#pragma once

#include <cstdint>

namespace collops::kernels {

// A vector of this many bytes or more leaves the caches before it is read again: kernels store it
// past them where the machine can, which saves fetching each line before it is overwritten. Where
// it was measured (2 ranks, 32 MiB of L3), that costs 10-40 % up to 12 MiB, is about even at 16 MiB
// and gains 10-15 % from 32 MiB on.
constexpr int64_t kStreamingBytes = 16 << 20;

constexpr int64_t kLineBytes = 64;

}  // namespace collops::kernels
