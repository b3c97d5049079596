// The tree of leaves: whoever holds which of them, the same sums are added.
#include "collops/kernels/reduce/leaf_tree.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"

namespace {

using collops::kernels::kMostLeaves;
using collops::kernels::kMostWaitingSums;
using collops::kernels::NumRoots;
using collops::kernels::Subtrees;
using collops::kernels::SumTree;
using collops::kernels::TreeOfRoots;
using collops::kernels::TreeWithin;

// "((0+1)+2)", by the definition.
std::string Defined(int64_t first, int64_t end) {
  if (end - first == 1) return std::to_string(first);
  int64_t left = 1;
  while (left * 2 < end - first) left *= 2;
  return "(" + Defined(first, first + left) + "+" + Defined(first + left, end) + ")";
}

// What is left after the summands have been added by the tree; `most` were waiting.
std::vector<std::string> Sums(const SumTree& tree, const std::vector<std::string>& summands,
                              size_t* most) {
  std::vector<std::string> waiting;
  EXPECT_EQ(tree.size(), summands.size());
  for (size_t i = 0; i < tree.size(); ++i) {
    std::string sum = summands[i];
    for (int added = 0; added < tree[i]; ++added) {
      sum = "(" + waiting.back() + "+" + sum + ")";
      waiting.pop_back();
    }
    waiting.push_back(sum);
    *most = std::max(*most, waiting.size());
  }
  return waiting;
}

// Adds up the leaves of each holder, then their roots.
std::string Total(const std::vector<int64_t>& begins) {
  size_t most = 0;
  std::vector<std::string> roots;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    const SumTree tree = TreeWithin(begins.back(), begins[i], begins[i + 1]);
    std::vector<std::string> own;
    for (int64_t leaf = begins[i]; leaf < begins[i + 1]; ++leaf)
      own.push_back(std::to_string(leaf));
    own = Sums(tree, own, &most);
    EXPECT_EQ(NumRoots(tree), static_cast<int64_t>(own.size()));
    roots.insert(roots.end(), own.begin(), own.end());
  }
  most = 0;
  const std::vector<std::string> total = Sums(TreeOfRoots(begins), roots, &most);
  EXPECT_TRUE(most <= kMostWaitingSums);
  EXPECT_EQ(total.size(), size_t{1});
  return total[0];
}

}  // namespace

TEST(AllHoldersTogetherAddByTheTree) {
  for (int64_t leaves = 1; leaves <= 19; ++leaves) {
    const std::string defined = Defined(0, leaves);
    EXPECT_EQ(Total({0, leaves}), defined);
    for (int64_t a = 1; a < leaves; ++a) {
      EXPECT_EQ(Total({0, a, leaves}), defined);
      for (int64_t b = a; b < leaves; ++b) EXPECT_EQ(Total({0, a, b, leaves}), defined);
    }
    std::vector<int64_t> each(static_cast<size_t>(leaves) + 1);
    for (size_t i = 0; i < each.size(); ++i) each[i] = static_cast<int64_t>(i);
    EXPECT_EQ(Total(each), defined);
  }
}

TEST(TheMostLeavesWaitWithinTheLimit) {
  for (const int64_t leaves : {kMostLeaves, kMostLeaves - 1}) {
    EXPECT_EQ(Total({0, leaves}), Defined(0, leaves));
    EXPECT_EQ(Total({0, 1, leaves - 1, leaves}), Defined(0, leaves));
  }
}

TEST(SubtreesAreThoseOfTheRootsAndOfNoMoreLeaves) {
  for (int64_t leaves = 1; leaves <= 19; ++leaves) {
    for (int64_t begin = 0; begin < leaves; ++begin) {
      for (int64_t end = begin + 1; end <= leaves; ++end) {
        const std::vector<int64_t> roots = Subtrees(leaves, begin, end);
        EXPECT_EQ(static_cast<int64_t>(roots.size()) - 1, NumRoots(TreeWithin(leaves, begin, end)));
        for (const int64_t most : {1, 2, 4}) {
          // Each is whole: with what is before and behind it the tree is as it was.
          const std::vector<int64_t> parts = Subtrees(leaves, begin, end, most);
          EXPECT_EQ(parts.back(), end);
          for (size_t i = 0; i + 1 < parts.size(); ++i) {
            EXPECT_TRUE(parts[i + 1] - parts[i] <= most);
            EXPECT_EQ(NumRoots(TreeWithin(leaves, parts[i], parts[i + 1])), 1);
          }
          const auto has_part = [&](int64_t border) {
            return std::find(parts.begin(), parts.end(), border) != parts.end();
          };
          for (const int64_t root : roots) EXPECT_TRUE(has_part(root));
        }
      }
    }
  }
}
