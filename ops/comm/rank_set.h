#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace collops {

// A set of ranks of a group. A value.
class RankSet {
 public:
  RankSet() = default;
  static RankSet None(int rank_size) { return RankSet(rank_size, false); }
  static RankSet All(int rank_size) { return RankSet(rank_size, true); }

  void Add(int rank) { has_[static_cast<size_t>(rank)] = true; }
  bool Contains(int rank) const {
    return rank >= 0 && static_cast<size_t>(rank) < has_.size() && has_[static_cast<size_t>(rank)];
  }
  int count() const { return static_cast<int>(std::count(has_.begin(), has_.end(), true)); }
  // Whether the set holds all ranks of the group.
  bool all() const {
    return std::all_of(has_.begin(), has_.end(), [](bool has) { return has; });
  }

 private:
  RankSet(int rank_size, bool has) : has_(static_cast<size_t>(rank_size), has) {}

  std::vector<bool> has_;
};

}  // namespace collops
