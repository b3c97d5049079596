#include "collops/kernels/reduce/leaf_tree.h"

#include <algorithm>

namespace collops::kernels {
namespace {

// The summands below the subtree of leaves [first, end), and how they are added. Whether the whole
// subtree was added up: nothing of it is outside.
template <typename IsSummand, typename IsOutside>
bool Add(int64_t first, int64_t end, const IsSummand& is_summand, const IsOutside& is_outside,
         SumTree* tree) {
  if (is_outside(first, end)) return false;
  if (is_summand(first, end)) {
    tree->push_back(0);
    return true;
  }
  int64_t left = 1;
  while (left * 2 < end - first) left *= 2;
  const bool has_left = Add(first, first + left, is_summand, is_outside, tree);
  const bool has_right = Add(first + left, end, is_summand, is_outside, tree);
  if (has_left && has_right) ++tree->back();
  return has_left && has_right;
}

}  // namespace

SumTree TreeWithin(int64_t leaves, int64_t begin, int64_t end) {
  SumTree tree;
  Add(
      0, leaves, [](int64_t first, int64_t last) { return last - first == 1; },
      [=](int64_t first, int64_t last) { return last <= begin || first >= end; }, &tree);
  return tree;
}

int64_t NumRoots(const SumTree& tree) {
  int64_t roots = 0;
  for (const uint8_t added : tree) roots += 1 - added;
  return roots;
}

std::vector<int64_t> Subtrees(int64_t leaves, int64_t begin, int64_t end, int64_t most) {
  std::vector<int64_t> borders = {begin};
  while (borders.back() < end) {
    // The subtrees that begin at a leaf are as long as what divides its number, or up to the end.
    const int64_t first = borders.back();
    const auto end_of = [&](int64_t size) { return std::min(first + size, leaves); };
    int64_t size = 1;
    while (size < most && first % (2 * size) == 0 && end_of(2 * size) <= end &&
           end_of(size) < leaves) {
      size *= 2;
    }
    borders.push_back(end_of(size));
  }
  return borders;
}

SumTree TreeOfRoots(const std::vector<int64_t>& begins) {
  SumTree tree;
  const auto has_one_holder = [&](int64_t first, int64_t last) {
    return *std::upper_bound(begins.begin(), begins.end(), first) >= last;
  };
  Add(0, begins.back(), has_one_holder, [](int64_t, int64_t) { return false; }, &tree);
  return tree;
}

}  // namespace collops::kernels
