#pragma once

#include <cstdint>
#include <random>

namespace collops {

// A number that no other process draws, as far as chance goes.
inline uint64_t DrawToken() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace collops
