#include "operators/framework/even_blocks.h"

namespace collops {

EvenBlocks::EvenBlocks(int rank_size, int64_t count)
    : counts(static_cast<size_t>(rank_size), count) {
  for (int r = 0; r < rank_size; ++r) displs.push_back(r * count);
}

const EvenBlocks& BlocksOf(const Plan& plan) {
  return static_cast<const EvenBlocks&>(*plan.details);
}

}  // namespace collops
