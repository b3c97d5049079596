// The bodies of the kernels that multiply in leaves and add by a tree, on the CPU: bit for bit the
// chains of fused multiply-adds, and the tree, one by one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "check.h"
#include "collops/core/dtype.h"
#include "collops/kernels/reduce/leaf_tree.h"
#include "collops/kernels/reduce/reduce.h"
#include "kernels/cuda_grid.h"
#include "kernels/half_reference.h"
#include "kernels/kernel_table.h"

namespace {

using collops::DType;
using collops::cuda::HostBlock;
using collops::cuda::LeafProductArgs;
using collops::cuda::MatrixArgs;
using collops::cuda::TreeSumArgs;
using collops::kernels::NumRoots;
using collops::kernels::Subtrees;
using collops::kernels::SumTree;
using collops::kernels::TreeWithin;

constexpr float kPoison = -77.25f;

// Memory from a multiple of 16 on.
template <class T>
std::vector<T> Draw(size_t count, std::mt19937_64& random) {
  std::vector<T> numbers(count);
  for (T& number : numbers) number = static_cast<T>(random());
  return numbers;
}

// Float bits of moderate magnitudes, and some near the smallest, whose products underflow to -0.
std::vector<float> DrawFloats(size_t count, std::mt19937_64& random) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    const float mantissa = static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f;
    number = std::ldexp(mantissa, random() % 16 == 0 ? -100 : static_cast<int>(random() % 5) - 2);
  }
  return numbers;
}

struct Case {
  DType dtype;
  int64_t rows;
  int64_t columns;
  int64_t k;  // of all leaves
  int64_t leaves;
  int64_t begin;
  int64_t end;
  bool transposed;                               // the weight is [n, k]
  int64_t gap = 0;                               // between rows in memory
  int64_t most = collops::kernels::kMostLeaves;  // leaves of a part
  bool dequantises = false;
};

// An operand in memory as `dtype`, `gap` numbers behind a multiple of 16 bytes, and its numbers.
struct Operand {
  Operand(DType type, int64_t lines, int64_t length, int64_t gap, std::mt19937_64& random)
      : dtype(type), ld(length + gap), first(gap) {
    const auto count = static_cast<size_t>(lines * ld + gap + 1);
    const auto bytes = static_cast<size_t>(SizeOf(dtype));
    memory.resize((count * bytes + 15) / 16);
    auto* const to = reinterpret_cast<char*>(memory.data());
    if (dtype == DType::kInt8) {
      for (size_t i = 0; i < count; ++i) to[i] = static_cast<char>(random());
      return;
    }
    const std::vector<float> drawn = DrawFloats(count, random);
    for (size_t i = 0; i < count; ++i) half_reference::Write(dtype, drawn[i], to + i * bytes);
  }
  const char* At(int64_t line, int64_t at) const {
    return reinterpret_cast<const char*>(memory.data()) + (first + line * ld + at) * SizeOf(dtype);
  }
  float Value(int64_t line, int64_t at) const { return half_reference::Read(dtype, At(line, at)); }
  int Whole(int64_t line, int64_t at) const { return static_cast<signed char>(*At(line, at)); }

  struct alignas(16) Chunk {
    char bytes[16];
  };
  DType dtype;
  int64_t ld;
  int64_t first;
  std::vector<Chunk> memory;
};

int64_t CutOf(const Case& c, int64_t leaf) {
  return c.k / c.leaves * leaf + std::min(leaf, c.k % c.leaves);
}

// The sums of [first, end) by the definition, of the leaves' values.
float TreeOf(const std::function<float(int64_t)>& leaf, int64_t first, int64_t end) {
  if (end - first == 1) return leaf(first);
  int64_t left = 1;
  while (left * 2 < end - first) left *= 2;
  return TreeOf(leaf, first, first + left) + TreeOf(leaf, first + left, end);
}

void Check(const Case& c, std::mt19937_64& random) {
  const int64_t from = CutOf(c, c.begin);
  const int64_t own_k = CutOf(c, c.end) - from;
  const Operand a(c.dtype, c.rows, own_k, c.gap, random);
  const Operand b(c.dtype, c.transposed ? c.columns : own_k, c.transposed ? own_k : c.columns,
                  c.gap, random);
  const auto bias = Draw<int32_t>(static_cast<size_t>(c.columns), random);
  const auto scale = DrawFloats(static_cast<size_t>(c.columns), random);
  const auto token = DrawFloats(static_cast<size_t>(c.rows), random);
  const std::vector<int64_t> parts = Subtrees(c.leaves, c.begin, c.end, c.most);
  const auto num_parts = static_cast<int64_t>(parts.size()) - 1;
  // Parts side by side in each row, as the owners of rows want them.
  const int64_t row_step = num_parts * (c.columns + c.gap);
  std::vector<float> out(static_cast<size_t>(c.rows * row_step + c.gap), kPoison);

  LeafProductArgs args = {};
  args.a = {const_cast<char*>(a.At(0, 0)), a.ld, 1, c.dtype};
  args.b = {const_cast<char*>(b.At(0, 0)), c.transposed ? 1 : b.ld, c.transposed ? b.ld : 1,
            c.dtype};
  args.c = out.data() + c.gap;
  args.c_row_step = row_step;
  args.part_step = c.columns + c.gap;
  const bool is_whole = c.dtype == DType::kInt8;
  if (c.dequantises && is_whole) {
    args.bias = {const_cast<int32_t*>(bias.data()), 0, 1, DType::kFloat32};
  }
  if (is_whole) args.scale = {const_cast<float*>(scale.data()), 0, 1, DType::kFloat32};
  if (c.dequantises) args.token = {const_cast<float*>(token.data()), 1, 0, DType::kFloat32};
  args.rows = c.rows;
  args.columns = c.columns;
  args.k = c.k;
  args.leaves = static_cast<int32_t>(c.leaves);
  args.num_parts = static_cast<int32_t>(num_parts);
  int64_t longest = 1;
  for (size_t i = 0; i < parts.size(); ++i) {
    args.begins[i] = static_cast<int32_t>(parts[i]);
    if (i > 0) longest = std::max(longest, parts[i] - parts[i - 1]);
  }
  while (int64_t{1} << args.most_waiting < longest) ++args.most_waiting;
  const cuda_grid::Grid drawn = cuda_grid::DrawGrid(random);
  const cuda_grid::Grid grid = {drawn.blocks, LeafProductArgs::kThreads, drawn.at_once};
  struct alignas(16) Waiting {
    float sums[4];
  };
  std::vector<Waiting> waiting(static_cast<size_t>(
      collops::cuda::WaitingBytes(args.rows, grid.blocks, args.most_waiting) / 16));
  args.waiting = reinterpret_cast<float*>(waiting.data());
  const auto* const kernel = collops::cuda::FindKernel<HostBlock>(LeafProductArgs::kName);
  cuda_grid::Run(grid, [&](HostBlock& block) { kernel->run(&args, block); });

  std::vector<float> expected(out.size(), kPoison);
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      const auto leaf = [&](int64_t number) {
        float sum = 0;
        uint32_t whole = 0;
        for (int64_t k = CutOf(c, number) - from; k < CutOf(c, number + 1) - from; ++k) {
          const int64_t line = c.transposed ? j : k;
          const int64_t at = c.transposed ? k : j;
          if (is_whole) {
            whole += static_cast<uint32_t>(a.Whole(i, k) * b.Whole(line, at));
          } else {
            sum = std::fma(a.Value(i, k), b.Value(line, at), sum);
          }
        }
        if (is_whole) {
          if (c.dequantises && number == c.begin) {
            whole += static_cast<uint32_t>(bias[static_cast<size_t>(j)]);
          }
          sum = static_cast<float>(static_cast<int32_t>(whole)) * scale[static_cast<size_t>(j)];
        }
        return c.dequantises ? sum * token[static_cast<size_t>(i)] : sum;
      };
      for (int64_t part = 0; part < num_parts; ++part) {
        const auto p = static_cast<size_t>(part);
        expected[static_cast<size_t>(c.gap + i * row_step + part * args.part_step + j)] =
            TreeOf(leaf, parts[p], parts[p + 1]);
      }
    }
  }
  EXPECT_TRUE(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)) == 0);
}

}  // namespace

TEST(ALeafIsOneChainAndLeavesAreAddedByTheTree) {
  std::mt19937_64 random(39);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    for (const bool transposed : {false, true}) {
      const int64_t gap = transposed ? 0 : 3;
      Check({dtype, 3, 5, 40, 1, 0, 1, transposed, gap}, random);
      Check({dtype, 17, 130, 100, 3, 0, 3, transposed, gap}, random);
      Check({dtype, 130, 131, 64, 4, 1, 3, transposed, 3 - gap}, random);
      Check({dtype, 1, 257, 133, 13, 5, 13, transposed, gap, 2}, random);
      Check({dtype, 16, 128, 256, 16, 0, 16, transposed, 0}, random);
      Check({dtype, 20, 9, 37, 37, 3, 36, transposed, 1, 8}, random);
    }
  }
}

TEST(LeavesAreDequantisedBeforeTheTree) {
  std::mt19937_64 random(40);
  for (const DType dtype : {DType::kBFloat16, DType::kInt8}) {
    Case c = {dtype, 18, 21, 150, 7, 2, 7, true};
    c.dequantises = true;
    Check(c, random);
    c.rows = 2;
    c.most = 1;
    Check(c, random);
  }
}

TEST(SumsThatALeafEndsAreThoseOfTheTree) {
  for (int64_t leaves = 1; leaves <= 33; ++leaves) {
    for (int64_t begin = 0; begin < leaves; ++begin) {
      const SumTree tree = TreeWithin(leaves, begin, leaves);
      for (int64_t leaf = begin; leaf < leaves; ++leaf) {
        EXPECT_EQ(
            collops::cuda::AddsBehindLeaf(static_cast<int32_t>(leaves), static_cast<int32_t>(begin),
                                          static_cast<int32_t>(leaf)),
            int{tree[static_cast<size_t>(leaf - begin)]});
      }
    }
  }
}

TEST(ATreeSumHasTheBitsOfStoreSum) {
  std::mt19937_64 random(41);
  for (const std::vector<int64_t>& begins : {std::vector<int64_t>{0, 1},
                                             {0, 3, 8},
                                             {0, 1, 15, 16},
                                             {0, 5, 6, 11, 13},
                                             {0, 1, 4095, 4096}}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const int64_t rows = 5;
      const int64_t columns = dtype == DType::kFloat32 ? 20 : 13;
      TreeSumArgs args = {};
      std::vector<int64_t> starts;  // of the summands
      std::vector<int64_t> steps;   // from row to row
      int64_t end = 0;
      for (size_t holder = 0; holder + 1 < begins.size(); ++holder) {
        const int64_t count =
            NumRoots(TreeWithin(begins.back(), begins[holder], begins[holder + 1]));
        args.counts[args.num_holders++] = static_cast<uint8_t>(count);
        for (int64_t i = 0; i < count; ++i) {
          starts.push_back(end + i * columns);
          steps.push_back(count * columns);
        }
        end += rows * count * columns;
      }
      const SumTree tree = collops::kernels::TreeOfRoots(begins);
      std::copy(tree.begin(), tree.end(), args.adds);
      const std::vector<float> summands = DrawFloats(static_cast<size_t>(end), random);
      std::vector<char> residual(static_cast<size_t>(columns * SizeOf(dtype)));
      for (int64_t j = 0; j < columns; ++j) {
        half_reference::Write(dtype, 0.37 * static_cast<double>(j),
                              residual.data() + j * SizeOf(dtype));
      }
      const int64_t ld = columns + 1;
      std::vector<char> out(static_cast<size_t>(rows * ld * SizeOf(dtype)), 0x5b);
      std::vector<char> expected = out;
      args.summands = summands.data();
      args.c = {out.data(), ld, 1, dtype};
      args.residual = {residual.data(), 0, 1, dtype};
      args.rows = rows;
      args.columns = columns;
      const auto* const kernel = collops::cuda::FindKernel<HostBlock>(TreeSumArgs::kName);
      cuda_grid::Run(cuda_grid::DrawGrid(random),
                     [&](HostBlock& block) { kernel->run(&args, block); });
      for (int64_t i = 0; i < rows; ++i) {
        std::vector<const float*> partials;
        for (size_t s = 0; s < starts.size(); ++s) {
          partials.push_back(summands.data() + starts[s] + i * steps[s]);
        }
        collops::kernels::StoreSum(dtype, partials.data(), static_cast<int>(partials.size()), 0,
                                   residual.data(), 1, columns,
                                   expected.data() + i * ld * SizeOf(dtype), ld, 1.0F, &tree);
      }
      EXPECT_TRUE(out == expected);
    }
  }
}
