// The product of int8, exact modulo 2^32 with every set of kernels that this machine has, and with
// models of those that it may lack.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"
#include "kernels/gemm_models.h"
#include "kernels/matrices.h"

namespace {

using namespace matrices;

struct Way {
  std::string name;
  Isa isa;
  bool extensions;
  const GemmKernels* model;
};

std::vector<Way> Ways() {
  std::vector<Way> ways = {
      {"model of tiles", Isa::kPortable, false, &gemm_models::kInt8Tiles},
      {"model of uint8 by int8", Isa::kPortable, false, &gemm_models::kByteQuads},
      {"model of smmla", Isa::kPortable, false, gemm_models::kInt8Blocks}};
#if defined(__aarch64__)
  // Which a CPU with FEAT_I8MM does not choose.
  if (Has(Extension::kDotProduct)) ways.push_back({"sdot", Isa::kNeon, true, SdotGemmKernels()});
#endif
  for (const Isa isa : RunnableIsas()) {
    ways.push_back({Name(isa), isa, true, nullptr});
    ways.push_back({collops::Concat(Name(isa), " without extensions"), isa, false, nullptr});
  }
  return ways;
}

std::vector<Way> WaysToWiden(DType dtype) {
  std::vector<Way> ways;
  for (const Way& way : Ways()) {
    if (way.model == nullptr) ways.push_back(way);
  }
  if (dtype != DType::kBFloat16) return ways;
  ways.push_back({"model of tiles", Isa::kPortable, false, &gemm_models::kTiles});
  ways.push_back({"model of bfmmla", Isa::kPortable, false, gemm_models::kBlocks});
  return ways;
}

GemmPlan PlanOf(const Way& way, int64_t k, int64_t n, bool trans_weight,
                DType dtype = DType::kInt8) {
  ForceIsa(way.isa);
  AllowExtensions(way.extensions);
  if (way.model != nullptr) return PlanWith(way.model, dtype, n, trans_weight, false, {0, k}, {0});
  return PlanGemm(dtype, k, n, trans_weight);
}

template <typename Value>
Matrix Make(int64_t rows, int64_t columns, const Value& value) {
  Matrix matrix{rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i) matrix.values.push_back(value());
  return matrix;
}

std::vector<uint32_t> PlainLoop(const Matrix& x, const Matrix& weight, bool trans_weight) {
  std::vector<uint32_t> product;
  const int64_t n = trans_weight ? weight.rows : weight.columns;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < x.columns; ++k) {
        const float w = trans_weight ? weight.At(j, k) : weight.At(k, j);
        sum += static_cast<int64_t>(x.At(i, k)) * static_cast<int64_t>(w);
      }
      product.push_back(static_cast<uint32_t>(sum));
    }
  }
  return product;
}

template <typename Value>
void Check(int64_t rows, int64_t k, int64_t n, const Value& value, std::mt19937* random = nullptr) {
  const Matrix x = Make(rows, k, value);
  for (const bool trans : {false, true}) {
    const Matrix weight = trans ? Make(n, k, value) : Make(k, n, value);
    const std::vector<uint32_t> expected = PlainLoop(x, weight, trans);
    for (const Way& way : Ways()) {
      const GemmPlan plan = PlanOf(way, k, n, trans);
      for (const Cut& cut : {Cut{random}, Cut{random, true}, Cut{random, false, true}}) {
        if (cut.in_passing && !AreFewRows(plan, rows)) continue;
        std::vector<float> sums;
        EXPECT_TRUE(Product(plan, x, weight, cut, &sums));
        EXPECT_EQ(sums.size(), expected.size());
        if (sums.empty() || std::memcmp(sums.data(), expected.data(), sums.size() * 4) == 0)
          continue;
        check::Fail(
            __FILE__, __LINE__,
            collops::Concat(way.name, trans ? " trans" : "", cut.packed_before ? " packed" : "",
                            cut.in_passing ? " in passing" : "", ": ", rows, " x ", k, " x ", n,
                            " is wrong"));
      }
    }
  }
}

auto AllOfInt8(std::mt19937& random) {
  return [&random] { return static_cast<float>(static_cast<int>(random() % 256) - 128); };
}

// Pairs of which sums saturate where an instruction adds in int16 or int32.
auto Extremes(std::mt19937& random) {
  return [&random] { return random() % 8 == 0 ? 127.0F : -128.0F; };
}

}  // namespace

TEST(Int8IsExactAtTheEdgesOfTiles) {
  std::mt19937 random(1);
  for (const int64_t rows : {0, 1, 3, 4, 5, 8, 9, 17, 33, 48}) {
    for (const int64_t n : {1, 7, 8, 9, 23, 24, 25, 31, 32, 33, 47, 48, 49, 384, 385}) {
      Check(rows, 21, n, AllOfInt8(random));
    }
  }
}

TEST(Int8IsExactAtTheEdgesOfBlocks) {
  std::mt19937 random(2);
  for (const int64_t k :
       {0, 1, 2, 3, 4, 5, 31, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2050}) {
    Check(9, k, 50, AllOfInt8(random));
  }
  Check(41, 1060, 386, AllOfInt8(random), &random);
}

TEST(Int8DoesNotSaturate) {
  std::mt19937 random(3);
  Check(5, 2048, 49, Extremes(random));
  Check(2, 2048, 33, [] { return -128.0F; });
  // 2^14 * 2^17 is 2^31: it wraps.
  Check(1, 131072 + 3, 3, [] { return -128.0F; });
}

TEST(Int8DoesNotDependOnThreads) {
  std::mt19937 random(4);
  ForceNumThreads(2);
  Check(131, 1050, 386, AllOfInt8(random));
  Check(3, 4100, 386, AllOfInt8(random));
  ForceNumThreads(1);
}

// float32((sum + bias) modulo 2^32) * scale * token scale, each step rounded.
TEST(SumsOfInt8AreScaled) {
  std::mt19937 random(5);
  constexpr int64_t kRows = 67;
  constexpr int64_t kColumns = 387;
  constexpr int64_t kK = 1030;
  const Matrix x = Make(kRows, kK, AllOfInt8(random));
  const Matrix weight = Make(kColumns, kK, AllOfInt8(random));
  const std::vector<uint32_t> sums = PlainLoop(x, weight, true);
  std::normal_distribution<float> normal;
  std::vector<float> scale(kColumns);
  std::vector<float> token_scale(kRows);
  std::vector<int32_t> bias(kColumns);
  for (float& value : scale) value = normal(random);
  for (float& value : token_scale) value = normal(random);
  for (int32_t& value : bias) value = static_cast<int32_t>(random());
  scale[0] = 0x1p-140F;  // subnormal
  scale[1] = 3e38F;
  scale[2] = std::nanf("");
  scale[3] = -0.0F;
  for (const bool all : {true, false}) {
    const TileScale by = {scale.data(), all ? bias.data() : nullptr,
                          all ? token_scale.data() : nullptr};
    std::vector<float> expected;
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kColumns; ++j) {
        const uint32_t sum = sums[i * kColumns + j] + (all ? static_cast<uint32_t>(bias[j]) : 0);
        volatile float value = static_cast<float>(static_cast<int32_t>(sum));
        value = value * scale[j];
        if (all) value = value * token_scale[i];
        expected.push_back(float{value});
      }
    }
    for (const Way& way : Ways()) {
      if (way.model != nullptr) continue;
      for (const Cut& cut : {Cut{&random}, Cut{&random, true}, Cut{&random, false, true}}) {
        std::vector<float> got;
        EXPECT_TRUE(Product(PlanOf(way, kK, kColumns, true), x, weight, cut, &got, by));
        bool same = got.size() == expected.size();
        for (size_t i = 0; same && i < got.size(); ++i) {
          same = std::memcmp(&got[i], &expected[i], 4) == 0 ||
                 (std::isnan(got[i]) && std::isnan(expected[i]));
        }
        if (!same) check::Fail(__FILE__, __LINE__, way.name + ": scales wrong");
      }
    }
  }
}

// Each leaf is exact and scaled, the first one with the bias; then they are added by the tree.
TEST(LeavesOfInt8AreScaledAndAdded) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  const std::vector<int64_t> borders = {0, 3, 130, 131, 700, 1301};
  constexpr int64_t kColumns = 387;
  constexpr int64_t kRows = 21;
  const Matrix x = Make(kRows, borders.back(), AllOfInt8(random));
  std::vector<float> scale(kColumns);
  std::vector<float> token_scale(kRows);
  std::vector<int32_t> bias(kColumns);
  for (float& value : scale) value = normal(random);
  for (float& value : token_scale) value = normal(random);
  for (int32_t& value : bias) value = static_cast<int32_t>(random());
  const TileScale by = {scale.data(), bias.data(), token_scale.data()};
  const auto leaves = static_cast<int64_t>(borders.size()) - 1;
  for (const bool trans : {false, true}) {
    const Matrix weight = trans ? Make(kColumns, borders.back(), AllOfInt8(random))
                                : Make(borders.back(), kColumns, AllOfInt8(random));
    std::vector<float> expected;
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kColumns; ++j) {
        std::vector<float> sums;
        for (size_t leaf = 0; leaf + 1 < borders.size(); ++leaf) {
          uint32_t sum = leaf == 0 ? static_cast<uint32_t>(bias[j]) : 0;
          for (int64_t k = borders[leaf]; k < borders[leaf + 1]; ++k) {
            const auto row = static_cast<int64_t>(i);
            const auto column = static_cast<int64_t>(j);
            const float w = trans ? weight.At(column, k) : weight.At(k, column);
            sum += static_cast<uint32_t>(static_cast<int32_t>(x.At(row, k) * w));
          }
          volatile float value = static_cast<float>(static_cast<int32_t>(sum));
          value = value * scale[j];
          sums.push_back(value * token_scale[i]);
        }
        const float first = sums[0] + sums[1];
        const float second = sums[2] + sums[3];
        expected.push_back((first + second) + sums[4]);
      }
    }
    for (const Isa isa : RunnableIsas()) {
      ForceIsa(isa);
      const GemmPlan plan =
          PlanLeaves(DType::kInt8, kColumns, trans, false, borders, TreeWithin(leaves, 0, leaves));
      for (const Cut& cut : {Cut{}, Cut{nullptr, true}, Cut{nullptr, false, true}}) {
        std::vector<float> got;
        EXPECT_TRUE(Product(plan, x, weight, cut, &got, by));
        if (std::memcmp(got.data(), expected.data(), got.size() * 4) == 0) continue;
        check::Fail(__FILE__, __LINE__, collops::Concat(Name(isa), trans ? " trans" : ""));
      }
    }
  }
}

// The bits of the product with the widened weight itself.
TEST(AnInt8WeightIsWidenedToTheTypeOfTheRows) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  constexpr int64_t kColumns = 387;
  constexpr int64_t kK = 1030;
  std::vector<float> scale(kColumns * kK);
  std::vector<float> offset(kColumns * kK);
  for (float& value : scale) value = normal(random) / 64;
  for (float& value : offset) value = normal(random) * 8;
  for (const int64_t rows : {3, 67}) {
    const Matrix x = Make(rows, kK, [&] { return normal(random); });
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const bool trans : {false, true}) {
        const Matrix weight = Make(trans ? kColumns : kK, trans ? kK : kColumns, AllOfInt8(random));
        for (const int64_t group_k : {int64_t{1}, int64_t{100}, kK}) {
          const WeightScale by = {scale.data(), group_k == 100 ? nullptr : offset.data(), group_k};
          Matrix widened = weight;
          for (int64_t i = 0; i < weight.rows; ++i) {
            for (int64_t j = 0; j < weight.columns; ++j) {
              const int64_t k = trans ? j : i;
              const auto place = static_cast<size_t>(k / group_k * kColumns + (trans ? i : j));
              volatile float value = weight.At(i, j);
              if (by.offset != nullptr) value = value + offset[place];
              value = value * scale[place];
              widened.values[static_cast<size_t>(i * weight.columns + j)] = RoundTo(dtype, value);
            }
          }
          for (const Way& way : WaysToWiden(dtype)) {
            for (const Cut& cut : {Cut{&random}, Cut{&random, false, true}}) {
              std::vector<float> expected;
              std::vector<float> got;
              GemmPlan plan = PlanOf(way, kK, kColumns, trans, dtype);
              EXPECT_TRUE(Product(plan, x, widened, {}, &expected));
              plan.widens_weight = true;
              EXPECT_TRUE(Product(plan, x, weight, cut, &got, {}, by));
              if (std::memcmp(got.data(), expected.data(), got.size() * 4) == 0) continue;
              check::Fail(__FILE__, __LINE__,
                          collops::Concat(way.name, " ", collops::Name(dtype),
                                          trans ? " trans" : "", " groups of ", group_k));
            }
          }
        }
      }
    }
  }
}
