#pragma once

#include <algorithm>
#include <cstdint>

namespace collops::cuda {

// The smallest block, and what the addresses of all blocks are multiples of.
constexpr int64_t kBlockBytes = 512;

// The size of the blocks that hold so many bytes: four sizes from one power of two to the next, so
// that a block which is given back fits what comes later, and at most a fifth of it is unused.
inline int64_t SizeClass(int64_t bytes) {
  int64_t power = kBlockBytes;
  while (power * 2 <= bytes) power *= 2;
  const int64_t step = std::max(kBlockBytes, power / 4);
  return std::max(kBlockBytes, (bytes + step - 1) / step * step);
}

}  // namespace collops::cuda
