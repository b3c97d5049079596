#pragma once

#include <cstdint>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// Counts and displacements of blocks of one size, one per rank, one after the other.
struct EvenBlocks : PlanDetails {
  EvenBlocks(int rank_size, int64_t count);

  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

// The details of a plan whose Complete() made them EvenBlocks.
const EvenBlocks& BlocksOf(const Plan& plan);

}  // namespace collops
