// The product with every set of kernels that this machine has, and with models of those that it may
// lack: exact for small integers, within a bound for other numbers, and with the same bits for
// every cut.
#include "collops/kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"
#include "kernels/gemm_models.h"
#include "kernels/matrices.h"

namespace {

using namespace matrices;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

struct Shape {
  int64_t rows;
  int64_t k;
  int64_t n;
};

// Which kernels multiply, and the order of the weight in memory.
struct Way {
  Isa isa;
  bool bfloat16_instructions;
  DType dtype;
  bool trans_weight;
  const GemmKernels* model = nullptr;  // else those of the CPU

  GemmPlan Plan(const Shape& shape) const {
    if (model != nullptr) {
      return PlanWith(model, dtype, shape.n, trans_weight, false, {0, shape.k}, {0});
    }
    ForceIsa(isa);
    AllowExtensions(bfloat16_instructions);
    return PlanGemm(dtype, shape.k, shape.n, trans_weight);
  }
};

bool HasBFloat16Instructions(Isa isa) {
  if (isa == Isa::kNeon) return Has(Extension::kBfmmla);
  return isa == Isa::kAvx512 && Has(Extension::kAvx512BFloat16);
}

std::vector<Way> Ways() {
  AllowExtensions(true);
  std::vector<Way> ways;
  for (const GemmKernels* const model : {&gemm_models::kTiles, gemm_models::kBlocks}) {
    for (const bool trans_weight : {false, true}) {
      ways.push_back({Isa::kPortable, true, DType::kBFloat16, trans_weight, model});
    }
  }
  for (const Isa isa : RunnableIsas()) {
    for (const DType dtype : kDTypes) {
      for (const bool trans_weight : {false, true}) {
        ways.push_back({isa, true, dtype, trans_weight});
        if (dtype != DType::kBFloat16 || !HasBFloat16Instructions(isa)) continue;
        ways.push_back({isa, false, dtype, trans_weight});
      }
    }
  }
  return ways;
}

// The model of tiles, which counts the elements of the weight that it packs: all, the most without
// a product in between, and those in small pieces.
namespace counted {

int64_t packed = 0;
int64_t at_once = 0;
int64_t most_at_once = 0;
int64_t beside = 0;
int64_t products_before = 0;

void Note(int64_t elements) {
  if (products_before != gemm_models::products) at_once = 0;
  products_before = gemm_models::products;
  packed += elements;
  at_once += elements;
  most_at_once = std::max(most_at_once, at_once);
  if (at_once <= 32 * kTilesColumns) beside += elements;
}

constexpr GemmKernels Table() {
  GemmKernels kernels = gemm_models::kTiles;
  kernels.pack_columns = [](const void* source, int64_t ld, int64_t rows, int64_t k,
                            uint32_t* panel) {
    Note(rows * k);
    gemm_models::kTiles.pack_columns(source, ld, rows, k, panel);
  };
  kernels.pack_straight = [](const void* source, int64_t ld, int64_t k, int64_t columns,
                             int64_t panel_units, uint32_t* panels) {
    Note(columns * k);
    gemm_models::kTiles.pack_straight(source, ld, k, columns, panel_units, panels);
  };
  return kernels;
}
constexpr GemmKernels kTiles = Table();

}  // namespace counted

std::string Describe(const Way& way, const Shape& shape) {
  return collops::Concat(collops::Name(way.dtype), way.trans_weight ? " trans " : " plain ",
                         way.model == nullptr                ? Name(way.isa)
                         : way.model == gemm_models::kBlocks ? "model of bfmmla"
                                                             : "model of tiles",
                         way.bfloat16_instructions ? "" : " without bf16", ", ", shape.rows, " x ",
                         shape.k, " x ", shape.n);
}

template <typename Value>
Matrix Make(int64_t rows, int64_t columns, const Value& value) {
  Matrix matrix{rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i) matrix.values.push_back(value());
  return matrix;
}

Matrix Transposed(const Matrix& matrix) {
  Matrix result{matrix.columns, matrix.rows, {}};
  for (int64_t j = 0; j < matrix.columns; ++j) {
    for (int64_t i = 0; i < matrix.rows; ++i) result.values.push_back(matrix.At(i, j));
  }
  return result;
}

// The factors of a product; the weight as [k, n] and as [n, k].
struct Factors {
  template <typename Value>
  Factors(const Shape& shape, const Value& value)
      : x(Make(shape.rows, shape.k, value)),
        weight(Make(shape.k, shape.n, value)),
        transposed(Transposed(weight)) {}

  const Matrix& Weight(const Way& way) const { return way.trans_weight ? transposed : weight; }

  Matrix x;
  Matrix weight;
  Matrix transposed;
};

std::vector<float> InOnePiece(const Way& way, const Shape& shape, const Factors& factors,
                              const Cut& cut = {}) {
  std::vector<float> product;
  if (!Product(way.Plan(shape), factors.x, factors.Weight(way), cut, &product)) {
    check::Fail(__FILE__, __LINE__, Describe(way, shape) + ": changed memory that is not C");
  }
  return product;
}

// Small integers of both signs: every dtype holds them, and float32 their sums.
auto SmallIntegers(std::mt19937& random) {
  return [&random] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
}

std::vector<float> PlainLoop(const Factors& factors) {
  const Matrix& a = factors.x;
  const Matrix& b = factors.weight;
  std::vector<float> product;
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < b.rows; ++k) sum += double{a.At(i, k)} * double{b.At(k, j)};
      product.push_back(static_cast<float>(sum));
    }
  }
  return product;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void CheckExact(const Shape& shape, std::mt19937& random) {
  const Factors factors(shape, SmallIntegers(random));
  const std::vector<float> expected = PlainLoop(factors);
  for (const Way& way : Ways()) {
    for (const Cut& cut : {Cut{}, Cut{nullptr, true, false}, Cut{nullptr, false, true}}) {
      if (cut.in_passing && !AreFewRows(way.Plan(shape), shape.rows)) continue;
      if (SameBits(InOnePiece(way, shape, factors, cut), expected)) continue;
      check::Fail(__FILE__, __LINE__,
                  collops::Concat(Describe(way, shape), cut.packed_before ? ", packed before" : "",
                                  cut.in_passing ? ", in passing" : "", ": is wrong"));
    }
  }
  EXPECT_EQ(gemm_models::in_use, 0);
}

}  // namespace

TEST(IntegersAreExactAtTheEdgesOfTiles) {
  std::mt19937 random(1);
  for (const int64_t rows : {0, 1, 3, 4, 5, 7, 8, 9, 17}) {
    for (const int64_t n : {1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 47, 48, 49, 64, 383, 384, 385}) {
      CheckExact({rows, 19, n}, random);
    }
  }
  for (const int64_t rows : {15, 16, 31, 32, 33, 47, 48, 65}) {
    for (const int64_t n : {1, 15, 16, 31, 32, 33, 64}) CheckExact({rows, 37, n}, random);
  }
}

TEST(IntegersAreExactAtTheEdgesOfBlocks) {
  std::mt19937 random(2);
  for (const int64_t k : {0,  1,  2,  3,  4,   7,   8,   9,   15,  16,  17,  31,  32,
                          33, 63, 64, 65, 255, 256, 257, 258, 511, 512, 513, 515, 1030}) {
    for (const int64_t n : {1, 50}) CheckExact({9, k, n}, random);
  }
  CheckExact({9, 1030, 386}, random);
  CheckExact({130, 270, 50}, random);
  CheckExact({530, 33, 32}, random);
}

TEST(TheCutDoesNotMatter) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Shape& shape : {Shape{41, 529, 395}, Shape{290, 529, 100}}) {
    const Factors factors(shape, [&] { return normal(random); });
    for (const Way& way : Ways()) {
      const std::vector<float> whole = InOnePiece(way, shape, factors);
      for (int i = 0; i < 6; ++i) {
        const Cut cut = {i == 0 ? nullptr : &random, i % 2 == 0, i == 3, i > 3};
        std::vector<float> pieces;
        EXPECT_TRUE(Product(way.Plan(shape), factors.x, factors.Weight(way), cut, &pieces));
        if (SameBits(whole, pieces)) continue;
        check::Fail(__FILE__, __LINE__, Describe(way, shape) + ": the cut changes bits");
      }
    }
  }
}

// Each element of the weight is packed once for all rows, and all but the first panel of a block in
// pieces of what two registers hold, between the steps of a product.
TEST(TilesPackBesideTheProduct) {
  std::mt19937 random(11);
  const Shape shape = {290, 1100, 200};
  const Factors factors(shape, SmallIntegers(random));
  const std::vector<float> expected = PlainLoop(factors);
  for (const bool trans_weight : {false, true}) {
    const Way way = {Isa::kPortable, true, DType::kBFloat16, trans_weight, &counted::kTiles};
    for (const Cut& cut : {Cut{}, Cut{&random, false, false, true}}) {
      counted::packed = counted::at_once = counted::most_at_once = counted::beside = 0;
      gemm_models::begins = 0;
      EXPECT_TRUE(SameBits(InOnePiece(way, shape, factors, cut), expected));
      EXPECT_EQ(counted::packed, shape.k * shape.n);
      EXPECT_EQ(counted::most_at_once, 512 * kTilesColumns);
      EXPECT_TRUE(counted::beside >= shape.k * (shape.n - kTilesColumns));
      EXPECT_EQ(gemm_models::begins.load(), way.Plan(shape).num_k_blocks());
    }
  }
}

// The sum of the leaves [first, last) of a row and a column by the definition.
float SumOfLeaves(const Factors& factors, const std::vector<int64_t>& borders, size_t first,
                  size_t last, int64_t i, int64_t j) {
  if (last - first > 1) {
    size_t left = 1;
    while (left * 2 < last - first) left *= 2;
    return SumOfLeaves(factors, borders, first, first + left, i, j) +
           SumOfLeaves(factors, borders, first + left, last, i, j);
  }
  float sum = 0;
  for (int64_t k = borders[first]; k < borders[last]; ++k) {
    sum = std::fma(factors.x.At(i, k), factors.weight.At(k, j), sum);
  }
  return sum;
}

// Numbers whose products and sums lose digits, with and without instructions: only fma in the order
// of k, and the tree, give these bits.
TEST(LeavesHaveTheSameBitsWithAllKernels) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  const std::vector<int64_t> borders = {0, 37, 37, 300, 557, 558};
  const Shape shape = {21, borders.back(), 395};
  const size_t leaves = borders.size() - 1;
  struct Held {
    size_t begin;               // these leaves are the last of so many
    std::vector<size_t> roots;  // where they begin; one more at the end
  };
  for (const Held& held : {Held{0, {0, 5}}, Held{1, {0, 1, 3, 5}}, Held{3, {0, 1, 5}}}) {
    const auto all = static_cast<int64_t>(held.begin + leaves);
    const SumTree tree = TreeWithin(all, static_cast<int64_t>(held.begin), all);
    for (const DType dtype : kDTypes) {
      const Factors factors(shape, [&] {
        return RoundTo(dtype, std::ldexp(normal(random), static_cast<int>(random() % 20) - 10));
      });
      std::vector<float> expected;
      for (size_t root = 0; root + 1 < held.roots.size(); ++root) {
        for (int64_t i = 0; i < shape.rows; ++i) {
          for (int64_t j = 0; j < shape.n; ++j) {
            expected.push_back(
                SumOfLeaves(factors, borders, held.roots[root], held.roots[root + 1], i, j));
          }
        }
      }
      for (const Isa isa : RunnableIsas()) {
        for (const bool trans_weight : {false, true}) {
          ForceIsa(isa);
          const GemmPlan plan = PlanLeaves(dtype, shape.n, trans_weight, false, borders, tree);
          for (const Cut& cut : {Cut{}, Cut{&random, true, false}, Cut{&random, false, true}}) {
            std::vector<float> product;
            const Matrix& weight = trans_weight ? factors.transposed : factors.weight;
            EXPECT_TRUE(Product(plan, factors.x, weight, cut, &product));
            if (SameBits(product, expected)) continue;
            const Way way = {isa, false, dtype, trans_weight};
            check::Fail(
                __FILE__, __LINE__,
                collops::Concat(Describe(way, shape), ", from leaf ", held.begin, ": other bits"));
          }
        }
      }
    }
  }
}

TEST(ThreadsDoNotMatter) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  const Shape shape = {97, 520, 386};
  const Factors factors(shape, [&] { return normal(random); });
  for (const Way& way : Ways()) {
    ForceNumThreads(1);
    const std::vector<float> one = InOnePiece(way, shape, factors);
    // Two share the columns alone; panels that do not divide are packed first, by all threads.
    for (const int threads : {2, 3, 7}) {
      ForceNumThreads(threads);
      for (const Cut& cut : {Cut{}, Cut{&random, false, false, true}}) {
        if (SameBits(one, InOnePiece(way, shape, factors, cut))) continue;
        check::Fail(__FILE__, __LINE__, Describe(way, shape) + ": threads change bits");
      }
    }
  }
  ForceNumThreads(1);
}

// 16 threads share the 12 panels of a strip by rows.
TEST(EveryThreadHasRowsOfABlock) {
  std::mt19937 random(12);
  const Shape shape = {512, 96, 384};
  const Factors factors(shape, SmallIntegers(random));
  const Way way = {Isa::kPortable, true, DType::kBFloat16, true, &gemm_models::kTiles};
  ForceNumThreads(16);
  gemm_models::begins = 0;
  EXPECT_TRUE(SameBits(InOnePiece(way, shape, factors), PlainLoop(factors)));
  EXPECT_EQ(gemm_models::begins.load(), 16);
  ForceNumThreads(1);
}

// Threads that share a strip are at different leaves at a time, and these are not equally long.
TEST(ThreadsDoNotMatterForFewRowsInLeaves) {
  std::mt19937 random(10);
  std::normal_distribution<float> normal;
  const Shape shape = {1, 1000, 384};
  const Factors factors(shape, [&] { return normal(random); });
  constexpr int64_t kLeaves = 96;
  std::vector<int64_t> borders = {0};
  for (int64_t i = 0; i < kLeaves; ++i) {
    borders.push_back(borders.back() + shape.k / kLeaves + (i < shape.k % kLeaves ? 1 : 0));
  }
  const SumTree tree = TreeWithin(kLeaves, 0, kLeaves);
  for (const bool trans_weight : {false, true}) {
    ForceIsa(RunnableIsas().front());
    const GemmPlan plan = PlanLeaves(DType::kFloat32, shape.n, trans_weight, false, borders, tree);
    const Matrix& weight = trans_weight ? factors.transposed : factors.weight;
    std::vector<float> one;
    EXPECT_TRUE(Product(plan, factors.x, weight, {nullptr, false, true}, &one));
    ForceNumThreads(2);
    for (int i = 0; i < 200; ++i) {
      std::vector<float> two;
      EXPECT_TRUE(Product(plan, factors.x, weight, {nullptr, false, true}, &two));
      if (SameBits(one, two)) continue;
      check::Fail(__FILE__, __LINE__, "threads change bits");
      break;
    }
    ForceNumThreads(1);
  }
}

// Each product and each sum may be off by half a last place of the sum so far; AVX512_BF16 and
// bfmmla may also lose products and sums below the smallest normal number. A sum of bfmmla may be
// off by a whole last place, but every second one is of two products only.
TEST(RealNumbersStayWithinTheBound) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const Shape shape = {13, 700, 83};
  for (const Way& way : Ways()) {
    const Factors factors(shape, [&] { return RoundTo(way.dtype, normal(random)); });
    const std::vector<float> product = InOnePiece(way, shape, factors);
    double worst = 0;
    for (int64_t i = 0; i < shape.rows; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (int64_t k = 0; k < shape.k; ++k) {
          const double term = double{factors.x.At(i, k)} * double{factors.weight.At(k, j)};
          sum += term;
          magnitude += std::fabs(term);
        }
        const auto terms = static_cast<double>(shape.k);
        const double bound = (terms + 1) * 0x1p-24 * magnitude + 2 * terms * 0x1p-126;
        const double got = double{product[static_cast<size_t>(i * shape.n + j)]};
        worst = std::max(worst, std::fabs(got - sum) / bound);
      }
    }
    if (worst <= 1) continue;
    check::Fail(__FILE__, __LINE__,
                collops::Concat(Describe(way, shape), ": ", worst, " times the bound"));
  }
}

// A NaN or infinity changes its row or its column, and nothing else.
TEST(NansAndInfinitiesPassThrough) {
  std::mt19937 random(6);
  const Shape shape = {11, 35, 57};
  Factors factors(shape, [&] { return static_cast<float>(1 + random() % 3); });
  const float infinity = std::numeric_limits<float>::infinity();
  factors.x.values[static_cast<size_t>(4 * shape.k + 34)] = std::nanf("");
  factors.x.values[static_cast<size_t>(9 * shape.k + 3)] = -infinity;
  factors.weight.values[static_cast<size_t>(20 * shape.n + 50)] = infinity;
  factors.transposed = Transposed(factors.weight);
  for (const Way& way : Ways()) {
    const std::vector<float> product = InOnePiece(way, shape, factors);
    for (int64_t i = 0; i < shape.rows; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        const float got = product[static_cast<size_t>(i * shape.n + j)];
        const bool opposite = i == 9 && j == 50;
        EXPECT_EQ(std::isnan(got), i == 4 || opposite);
        EXPECT_EQ(std::isinf(got), (i == 9 || (j == 50 && i != 4)) && !opposite);
      }
    }
  }
}

// A packed weight is read in every product: it takes no more memory than the weight itself.
TEST(APackedWeightIsAsSmallAsTheWeight) {
  for (const Way& way : Ways()) {
    const Shape shape = {1, 512, 768};
    if (way.model == nullptr)
      EXPECT_EQ(PackedWeightBytes(way.Plan(shape)), 512 * 768 * collops::SizeOf(way.dtype));
  }
}

TEST(OtherTypesAreNotMultiplied) {
  for (const DType dtype : kDTypes) EXPECT_TRUE(CanMultiply(dtype));
  for (const DType dtype : {DType::kUndefined, DType::kFloat64, DType::kUInt8, DType::kInt32}) {
    EXPECT_FALSE(CanMultiply(dtype));
  }
}

TEST(TheModelRoundsToOdd) {
  EXPECT_EQ(gemm_models::AddToOdd(1, 0x1p-23F), 1 + 0x1p-23F);
  EXPECT_EQ(gemm_models::AddToOdd(1, 0x1p-24F), 1 + 0x1p-23F);
  EXPECT_EQ(gemm_models::AddToOdd(1, 0x1p-90F), 1 + 0x1p-23F);
  EXPECT_EQ(gemm_models::AddToOdd(1, -0x1p-90F), 1 - 0x1p-24F);
  EXPECT_EQ(gemm_models::AddToOdd(-1, -0x1p-30F), -1 - 0x1p-23F);
  EXPECT_EQ(gemm_models::AddToOdd(1 + 0x1p-22F, 0x1.8p-24F), 1 + 0x1.8p-22F);
  EXPECT_EQ(gemm_models::AddToOdd(0x1.8p-126F, -0x1p-126F), 0.0F);
}

// Numbers of all sizes, subnormal ones, infinities and NaNs among them.
TEST(TheInstructionGivesTheBitsOfTheModel) {
  AllowExtensions(true);
  if (!Has(Extension::kBfmmla)) return;
  std::mt19937 random(3);
  const auto value = [&] {
    if (random() % 4096 == 0) return random() % 2 == 0 ? std::nanf("") : INFINITY;
    const float magnitude = std::ldexp(1.0F + static_cast<float>(random() % 128) / 128,
                                       static_cast<int>(random() % 90) - 80);
    return random() % 2 == 0 ? magnitude : -magnitude;
  };
  const Shape shape = {21, 521, 29};
  const Factors factors(shape, value);
  for (const bool trans_weight : {false, true}) {
    const Way instruction = {Isa::kNeon, true, DType::kBFloat16, trans_weight};
    Way model = instruction;
    model.model = gemm_models::kBlocks;
    EXPECT_TRUE(
        SameBits(InOnePiece(instruction, shape, factors), InOnePiece(model, shape, factors)));
  }
}
