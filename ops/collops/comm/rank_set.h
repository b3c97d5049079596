#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "collops/core/status.h"

namespace [[gnu::visibility("default")]] collops {

// A set of ranks of a group. A value.
class RankSet {
 public:
  RankSet() = default;
  static RankSet None(int rank_size) { return RankSet(rank_size, false); }
  static RankSet All(int rank_size) { return RankSet(rank_size, true); }

  void Add(int rank) { has_[static_cast<size_t>(rank)] = true; }
  // `others`: of the same group.
  void AddAll(const RankSet& others) {
    for (size_t rank = 0; rank < has_.size(); ++rank) has_[rank] = has_[rank] || others.has_[rank];
  }
  bool Contains(int rank) const {
    return rank >= 0 && static_cast<size_t>(rank) < has_.size() && has_[static_cast<size_t>(rank)];
  }
  // `other`: of the same group.
  bool operator==(const RankSet& other) const { return has_ == other.has_; }
  bool operator!=(const RankSet& other) const { return has_ != other.has_; }
  // Ranks of the group.
  int size() const { return static_cast<int>(has_.size()); }
  int count() const { return static_cast<int>(std::count(has_.begin(), has_.end(), true)); }
  // Whether the set holds all ranks of the group.
  bool all() const {
    return std::all_of(has_.begin(), has_.end(), [](bool has) { return has; });
  }

 private:
  RankSet(int rank_size, bool has) : has_(static_cast<size_t>(rank_size), has) {}

  std::vector<bool> has_;
};

// "[0, 2]": those of a group of `size` that are in the set.
inline std::string ListOf(const RankSet& ranks, int size) {
  std::string list;
  for (int r = 0; r < size; ++r) {
    if (ranks.Contains(r)) list += Concat(list.empty() ? "" : ", ", r);
  }
  return Concat("[", list, "]");
}

// "rank 2 of 3", "ranks 1, 3 of 4": those of a group that are not in the set. Of many, the first.
inline std::string RanksMissing(const RankSet& present, int rank_size) {
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
