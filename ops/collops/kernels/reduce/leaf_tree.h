#pragma once

#include <cstdint>
#include <vector>

namespace collops::kernels {

// The binary tree by which the sums of leaves are added: the left part of some leaves is the
// largest power of two below their number. Who holds neighbouring leaves can add up the whole
// subtrees among them; what is left of each holder, in order, are its roots.

constexpr int64_t kMostLeaves = 4096;
// Sums that are waiting to be added at a time, at most.
constexpr int kMostWaitingSums = 13;

// How summands are added in their order: entry i is how many of the sums before summand i are
// added to it, one after the other, the last of them first. No sum before it is left: a total.
using SumTree = std::vector<uint8_t>;

// The holder of leaves [begin, end) of all `leaves` adds them to its roots.
SumTree TreeWithin(int64_t leaves, int64_t begin, int64_t end);

// How many these are.
int64_t NumRoots(const SumTree& tree);

// The borders of the largest subtrees of at most `most` leaves, a power of two, that make up leaves
// [begin, end): without a limit those of the holder's roots.
std::vector<int64_t> Subtrees(int64_t leaves, int64_t begin, int64_t end,
                              int64_t most = kMostLeaves);

// All holders' roots are added to the total. Holder i has leaves [begins[i], begins[i + 1]); the
// last entry is the number of all leaves.
SumTree TreeOfRoots(const std::vector<int64_t>& begins);

}  // namespace collops::kernels
