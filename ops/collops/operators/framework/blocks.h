#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/call.h"
#include "collops/core/status.h"
#include "collops/operators/framework/collective_operation.h"

namespace collops {

// Block r of a tensor is the elements [displs[r], displs[r] + counts[r]). The caller's lists may
// hold any number; a list that could not be read is empty, and then a check of it passes.
struct RankBlocks {
  const std::vector<int64_t>& counts;
  const std::vector<int64_t>& displs;
};

// Words for the messages: "block 2 (rdispls 30 + recvCounts 4) exceeds the output's 32 elements".
struct BlockWords {
  const char* operation;
  const char* block;
  const char* displs;
  const char* counts;
  const char* whole;
};

// Checks that every block ends within `whole` elements, else `code`; an empty one may lie at the
// end.
Status CheckEnds(const BlockWords& words, const RankBlocks& blocks, int64_t whole,
                 ErrorCode code = ERROR_INVALID_TENSOR_DIM);

// False if the sum does not fit into 64 bits; the numbers may be negative.
bool AddUp(const std::vector<int64_t>& counts, int64_t* sum);

// Checks that no count and no displacement is below 0.
Status CheckNotNegative(const OpSignature& signature, const Counts& counts);

// Checks that no two blocks share an element. The blocks have passed the two checks above.
Status CheckDisjoint(const BlockWords& words, const RankBlocks& blocks);

// The ranges that no block covers, in order. The blocks have passed all three checks.
std::vector<Range> FindGaps(const RankBlocks& blocks, int64_t whole);

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
