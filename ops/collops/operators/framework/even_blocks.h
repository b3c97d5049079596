#pragma once

#include <cstdint>
#include <vector>

#include "collops/operators/framework/collective_operation.h"

namespace collops {

// Counts and displacements of blocks of one size, one per rank, one after the other.
struct EvenBlocks : PlanDetails {
  EvenBlocks(int rank_size, int64_t count) : counts(static_cast<size_t>(rank_size), count) {
    for (int r = 0; r < rank_size; ++r) displs.push_back(r * count);
  }

  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

// The details of a plan whose Complete() made them EvenBlocks.
inline const EvenBlocks& BlocksOf(const Plan& plan) {
  return static_cast<const EvenBlocks&>(*plan.details);
}

}  // namespace collops
