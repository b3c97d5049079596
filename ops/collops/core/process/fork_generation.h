#pragma once

#include <cstdint>

namespace collops {

// Grows by one in every child of fork(). An object of another generation belongs to the parent
// process: the child must neither use it nor tell peers that it is gone.
uint64_t ForkGeneration();

}  // namespace collops
