#include "collops/operators/framework/blocks.h"

#include <algorithm>

namespace collops {
namespace {

// `whole` is >= 0, so neither line below can overflow.
bool EndsPast(int64_t displ, int64_t count, int64_t whole) {
  if (count >= 0) return displ > whole - count;
  return displ > whole && displ + count > whole;
}

bool AreRead(const RankBlocks& blocks) {
  return !blocks.counts.empty() && !blocks.displs.empty();
}

// The ranks whose block is not empty, by displacement.
std::vector<size_t> FilledInOrder(const RankBlocks& blocks) {
  std::vector<size_t> ranks;
  for (size_t r = 0; r < blocks.counts.size(); ++r) {
    if (blocks.counts[r] > 0) ranks.push_back(r);
  }
  std::sort(ranks.begin(), ranks.end(), [&](size_t a, size_t b) {
    return blocks.displs[a] != blocks.displs[b] ? blocks.displs[a] < blocks.displs[b] : a < b;
  });
  return ranks;
}

}  // namespace

Status CheckEnds(const BlockWords& words, const RankBlocks& blocks, int64_t whole, ErrorCode code) {
  if (!AreRead(blocks)) return Ok();
  for (size_t r = 0; r < blocks.counts.size(); ++r) {
    const int64_t displ = blocks.displs[r];
    const int64_t count = blocks.counts[r];
    COLLOPS_CHECK_ARG(!EndsPast(displ, count, whole), code, words.operation, ": ", words.block, " ",
                      r, " (", words.displs, " ", displ, " + ", words.counts, " ", count,
                      ") exceeds ", words.whole, " ", whole, " elements");
  }
  return Ok();
}

bool AddUp(const std::vector<int64_t>& counts, int64_t* sum) {
  *sum = 0;
  for (const int64_t count : counts) {
    if (__builtin_add_overflow(*sum, count, sum)) return false;
  }
  return true;
}

Status CheckNotNegative(const OpSignature& signature, const Counts& counts) {
  for (size_t i = 0; i < counts.size(); ++i) {
    for (size_t r = 0; r < counts[i].size(); ++r) {
      COLLOPS_CHECK_ARG(counts[i][r] >= 0, ERROR_INVALID_PARAM, signature.name, ": ",
                        signature.inputs[i].name, "[", r, "] must be >= 0, got ", counts[i][r]);
    }
  }
  return Ok();
}

Status CheckDisjoint(const BlockWords& words, const RankBlocks& blocks) {
  if (!AreRead(blocks)) return Ok();
  const std::vector<size_t> ranks = FilledInOrder(blocks);
  for (size_t i = 1; i < ranks.size(); ++i) {
    const size_t a = ranks[i - 1];
    const size_t b = ranks[i];
    const int64_t end = blocks.displs[a] + blocks.counts[a];
    COLLOPS_CHECK_ARG(end <= blocks.displs[b], ERROR_INVALID_PARAM, words.operation, ": ",
                      words.block, " ", a, " (", words.displs, " ", blocks.displs[a], " + ",
                      words.counts, " ", blocks.counts[a], ") overlaps ", words.block, " ", b,
                      ", which begins at ", blocks.displs[b], ": keep them apart");
  }
  return Ok();
}

std::vector<Range> FindGaps(const RankBlocks& blocks, int64_t whole) {
  std::vector<Range> gaps;
  int64_t covered = 0;
  for (const size_t r : FilledInOrder(blocks)) {
    const int64_t begin = blocks.displs[r];
    if (covered < begin) gaps.push_back({covered, begin});
    covered = begin + blocks.counts[r];
  }
  if (covered < whole) gaps.push_back({covered, whole});
  return gaps;
}

}  // namespace collops
