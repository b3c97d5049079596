#include "collops/comm/rank_set.h"

#include "collops/core/status.h"

namespace collops {

std::string RanksMissing(const RankSet& present, int rank_size) {
  constexpr int kMostListed = 16;
  const int missing = rank_size - present.count();
  std::string list;
  int listed = 0;
  for (int rank = 0; rank < rank_size && listed < kMostListed; ++rank) {
    if (present.Contains(rank)) continue;
    list += Concat(listed++ > 0 ? ", " : " ", rank);
  }
  if (missing > listed) list += Concat(" and ", missing - listed, " others");
  return Concat(missing > 1 ? "ranks" : "rank", list, " of ", rank_size);
}

}  // namespace collops
