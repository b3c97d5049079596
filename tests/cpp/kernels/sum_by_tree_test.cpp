// Sums of elements by the tree of leaves: each sum by its definition, one element at a time.
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/thread_pool.h"
#include "kernels/half_reference.h"

namespace {

using collops::Concat;
using collops::DType;
using collops::SizeOf;
using collops::kernels::ForceNumThreads;
using collops::kernels::kMostLeaves;
using collops::kernels::NumRoots;
using collops::kernels::SumByTree;
using collops::kernels::SummedAs;
using collops::kernels::SumTree;
using collops::kernels::TreeOfRoots;
using collops::kernels::TreeWithin;

// An element of the type in which sums are added up, and its bits.
template <typename Wide>
struct Number {
  static Wide Read(DType dtype, const char* from) {
    if (sizeof(Wide) == sizeof(float) && dtype != DType::kInt32) {
      return static_cast<Wide>(half_reference::Read(dtype, from));
    }
    Wide value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  static void Write(DType dtype, Wide value, char* to) {
    if (SizeOf(dtype) == 2) {
      half_reference::Write(dtype, static_cast<double>(value), to);
    } else {
      std::memcpy(to, &value, sizeof(value));
    }
  }
};

using Buffers = std::vector<std::vector<char>>;

Buffers Drawn(DType dtype, size_t many, int64_t count, size_t shift, std::mt19937* random) {
  std::normal_distribution<double> draw(0, 1000);
  Buffers drawn(many);
  for (std::vector<char>& one : drawn) {
    one.resize(shift + static_cast<size_t>(count * SizeOf(dtype)));
    for (int64_t i = 0; i < count; ++i) {
      char* const to = one.data() + shift + i * SizeOf(dtype);
      if (dtype == DType::kInt32) {
        Number<int32_t>::Write(dtype, static_cast<int32_t>((*random)()), to);
      } else if (dtype == DType::kFloat64) {
        Number<double>::Write(dtype, draw(*random), to);
      } else {
        Number<float>::Write(dtype, static_cast<float>(draw(*random)), to);
      }
    }
  }
  return drawn;
}

template <typename Wide>
void Check(DType from, DType to, const SumTree& tree, int64_t count, size_t shift,
           std::mt19937* random) {
  const Buffers summands = Drawn(from, tree.size(), count, shift, random);
  std::vector<const void*> sources;
  for (const std::vector<char>& one : summands) sources.push_back(one.data() + shift);
  const auto bytes = static_cast<size_t>(count * SizeOf(to));
  Buffers got(static_cast<size_t>(NumRoots(tree)), std::vector<char>(shift + bytes + 1, 77));
  Buffers wanted = got;
  std::vector<void*> sums;
  for (std::vector<char>& one : got) sums.push_back(one.data() + shift);
  SumByTree(from, sources.data(), tree, count, to, sums.data());
  for (int64_t i = 0; i < count; ++i) {
    std::vector<Wide> waiting;
    for (size_t s = 0; s < tree.size(); ++s) {
      Wide sum = Number<Wide>::Read(from, summands[s].data() + shift + i * SizeOf(from));
      for (int added = 0; added < tree[s]; ++added) {
        // Of integers modulo 2^32.
        if constexpr (std::is_integral_v<Wide>) {
          sum =
              static_cast<Wide>(static_cast<uint32_t>(waiting.back()) + static_cast<uint32_t>(sum));
        } else {
          sum = waiting.back() + sum;
        }
        waiting.pop_back();
      }
      waiting.push_back(sum);
    }
    for (size_t root = 0; root < wanted.size(); ++root) {
      Number<Wide>::Write(to, waiting[root], wanted[root].data() + shift + i * SizeOf(to));
    }
  }
  const std::string what = Concat(Name(from), " to ", Name(to), ", ", tree.size(), " summands, ",
                                  wanted.size(), " roots, ", count, " elements, shift ", shift);
  for (size_t root = 0; root < wanted.size(); ++root) {
    EXPECT_EQ(Concat(what, got[root] == wanted[root] ? "" : " differ"), what);
  }
}

const std::vector<SumTree>& Trees() {
  static const std::vector<SumTree> trees = {TreeWithin(1, 0, 1), TreeWithin(7, 0, 7),
                                             TreeWithin(8, 1, 7), TreeWithin(11, 3, 10),
                                             TreeOfRoots({0, 3, 3, 8, 13})};
  return trees;
}

}  // namespace

TEST(EveryTypeIsAddedByTheTree) {
  std::mt19937 random(1);
  for (const SumTree& tree : Trees()) {
    for (const int64_t count : {1, 17, 2048, 5000}) {
      for (const size_t shift : {size_t{0}, size_t{1}}) {
        for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
          Check<float>(half, half, tree, count, shift, &random);
          Check<float>(half, DType::kFloat32, tree, count, shift, &random);
          Check<float>(DType::kFloat32, half, tree, count, shift, &random);
        }
        Check<float>(DType::kFloat32, DType::kFloat32, tree, count, shift, &random);
        Check<double>(DType::kFloat64, DType::kFloat64, tree, count, shift, &random);
        Check<int32_t>(DType::kInt32, DType::kInt32, tree, count, shift, &random);
      }
    }
  }
}

TEST(TheMostLeavesAreAddedByTheTree) {
  std::mt19937 random(2);
  Check<float>(DType::kBFloat16, DType::kBFloat16, TreeWithin(kMostLeaves, 0, kMostLeaves), 3, 0,
               &random);
}

TEST(ThreadsShareTheElementsOfATreesSums) {
  std::mt19937 random(3);
  ForceNumThreads(3);
  Check<float>(DType::kFloat32, DType::kFloat32, TreeWithin(11, 3, 10), 200'001, 0, &random);
  ForceNumThreads(1);
}

TEST(ASumMayBeOneOfItsSummands) {
  const SumTree tree = TreeWithin(3, 0, 3);
  for (size_t place = 0; place < 3; ++place) {
    std::vector<std::vector<float>> numbers(3, std::vector<float>(3000, 1.0F));
    const void* const sources[] = {numbers[0].data(), numbers[1].data(), numbers[2].data()};
    void* const sum = numbers[place].data();
    SumByTree(DType::kFloat32, sources, tree, 3000, DType::kFloat32, &sum);
    EXPECT_EQ(numbers[place] == std::vector<float>(3000, 3.0F), true);
  }
}
