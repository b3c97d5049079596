// The product by blocks of 2 x 2 (gemm_matrix_loops.h), on every machine: with a model of the
// instruction as the Arm Architecture Reference Manual describes it, which is compared with the
// instruction where the CPU has it.
#include "collops/kernels/gemm/gemm_matrix_loops.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/isa.h"
#include "kernels/matrices.h"

namespace {

using namespace matrices;

// Subnormal numbers become zero.
float Flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value;
}

// Every NaN is the same one.
float OneNan(float value) {
  return std::isnan(value) ? FloatFromBits(0x7fc00000) : value;
}

// A sum of normal numbers or zeros. If it is inexact, the last bit of the result is 1.
float AddToOdd(float a, float b) {
  const double sum = double{a} + double{b};
  const auto nearest = static_cast<float>(sum);
  if (!std::isfinite(nearest)) return OneNan(nearest);
  // What the sum of doubles lacks.
  const double b_in_sum = sum - double{a};
  const double rest = (double{a} - (sum - b_in_sum)) + (double{b} - b_in_sum);
  const double error = (double{nearest} - sum) - rest;
  if (error == 0) return Flush(nearest);
  const bool away_from_zero = (error > 0) == (nearest > 0);
  return Flush(FloatFromBits((BitsFromFloat(nearest) - (away_from_zero ? 1 : 0)) | 1));
}

// Exact but for numbers that are too small or too large: two bfloat16 have 16 bits together.
float MultiplyPair(uint16_t a, uint16_t b) {
  return OneNan(Flush(Flush(BFloat16ToFloat(a)) * Flush(BFloat16ToFloat(b))));
}

struct Model {
  static BlockOfSums MultiplyAdd(Factor a, Factor b, BlockOfSums sums) {
    for (int element = 0; element < 4; ++element) {
      const int row = element / 2 * 4;
      const int column = element % 2 * 4;
      float sum = Flush(sums[element]);
      for (int k = 0; k < 4; k += 2) {
        sum = AddToOdd(sum, AddToOdd(MultiplyPair(a[row + k], b[column + k]),
                                     MultiplyPair(a[row + k + 1], b[column + k + 1])));
      }
      sums[element] = sum;
    }
    return sums;
  }
};

struct Shape {
  int64_t rows;
  int64_t k;
  int64_t n;
};

GemmPlan ModelPlan(const Shape& shape, bool trans_weight) {
  const GemmKernels& kernels = kBlockKernels<Model>;
  return {DType::kBFloat16, shape.k,          shape.n,
          trans_weight,     kernels.row_tile, kernels.block_units * kernels.k_per_unit,
          &kernels};
}

GemmPlan PlanOf(Isa isa, const Shape& shape, bool trans_weight) {
  ForceIsa(isa);
  return PlanGemm(DType::kBFloat16, shape.k, shape.n, trans_weight);
}

template <typename Value>
Matrix Make(int64_t rows, int64_t columns, const Value& value) {
  Matrix matrix{rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i) matrix.values.push_back(value());
  return matrix;
}

// The rows of A and the weight, in the order in memory that `trans_weight` says.
struct Factors {
  template <typename Value>
  Factors(const Shape& shape, bool trans_weight, const Value& value)
      : x(Make(shape.rows, shape.k, value)),
        weight(trans_weight ? Make(shape.n, shape.k, value) : Make(shape.k, shape.n, value)) {}

  std::vector<float> Multiply(const GemmPlan& plan, const Cut& cut = {}) const {
    std::vector<float> product;
    if (!Product(plan, x, weight, cut, &product)) {
      check::Fail(__FILE__, __LINE__, "changed memory that is not C");
    }
    return product;
  }

  Matrix x;
  Matrix weight;
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const Shape& shape,
                    bool trans_weight) {
  if (a.size() == b.size() &&
      (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0)) {
    return;
  }
  check::Fail(__FILE__, __LINE__,
              collops::Concat(trans_weight ? "trans " : "plain ", shape.rows, " x ", shape.k, " x ",
                              shape.n, ": other bits"));
}

}  // namespace

TEST(TheModelRoundsToOdd) {
  EXPECT_EQ(AddToOdd(1, 0x1p-23F), 1 + 0x1p-23F);
  EXPECT_EQ(AddToOdd(1, 0x1p-24F), 1 + 0x1p-23F);
  EXPECT_EQ(AddToOdd(1, 0x1p-90F), 1 + 0x1p-23F);
  EXPECT_EQ(AddToOdd(1, -0x1p-90F), 1 - 0x1p-24F);
  EXPECT_EQ(AddToOdd(-1, -0x1p-30F), -1 - 0x1p-23F);
  EXPECT_EQ(AddToOdd(1 + 0x1p-22F, 0x1.8p-24F), 1 + 0x1.8p-22F);
  EXPECT_EQ(AddToOdd(0x1.8p-126F, -0x1p-126F), 0.0F);
}

TEST(IntegersGiveTheBitsOfThePortableKernels) {
  std::mt19937 random(1);
  const auto value = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  std::vector<Shape> shapes = {{70, 6, 390}, {3, 0, 5}};
  for (const int64_t rows : {1, 2, 7, 8, 9}) shapes.push_back({rows, 19, 25});
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 11, 12, 13}) shapes.push_back({5, 8, n});
  for (const int64_t k : {1, 2, 3, 4, 5, 6, 7, 9, 513, 515}) shapes.push_back({9, k, 14});
  for (const Shape& shape : shapes) {
    for (const bool trans_weight : {false, true}) {
      const Factors factors(shape, trans_weight, value);
      const std::vector<float> expected =
          factors.Multiply(PlanOf(Isa::kPortable, shape, trans_weight));
      const GemmPlan plan = ModelPlan(shape, trans_weight);
      for (const bool in_passing : {false, true}) {
        const Cut cut = {nullptr, false, in_passing};
        ExpectSameBits(factors.Multiply(plan, cut), expected, shape, trans_weight);
      }
    }
  }
}

TEST(TheCutDoesNotMatter) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const Shape shape = {21, 530, 29};
  for (const bool trans_weight : {false, true}) {
    const Factors factors(shape, trans_weight, [&] { return normal(random); });
    const GemmPlan plan = ModelPlan(shape, trans_weight);
    const std::vector<float> whole = factors.Multiply(plan);
    for (const bool packed_before : {false, true}) {
      const Cut cut = {&random, packed_before, !packed_before};
      ExpectSameBits(factors.Multiply(plan, cut), whole, shape, trans_weight);
    }
  }
}

// Numbers of all sizes, subnormal ones, infinities and NaNs among them.
TEST(TheInstructionGivesTheBitsOfTheModel) {
  AllowBfmmla(true);
  if (!HasBfmmla()) return;
  std::mt19937 random(3);
  const auto value = [&] {
    if (random() % 4096 == 0) return random() % 2 == 0 ? std::nanf("") : INFINITY;
    const float magnitude = std::ldexp(1.0F + static_cast<float>(random() % 128) / 128,
                                       static_cast<int>(random() % 90) - 80);
    return random() % 2 == 0 ? magnitude : -magnitude;
  };
  const Shape shape = {21, 521, 29};
  for (const bool trans_weight : {false, true}) {
    const Factors factors(shape, trans_weight, value);
    ExpectSameBits(factors.Multiply(PlanOf(Isa::kNeon, shape, trans_weight)),
                   factors.Multiply(ModelPlan(shape, trans_weight)), shape, trans_weight);
  }
}
