// Every dtype and reduction, on every instruction set of this machine, against a slow reference
// that works on one element at a time.
#include "collops/kernels/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/half.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"
#include "kernels/half_reference.h"
#include "kernels/reduce_reference.h"

namespace {

using collops::DType;
using collops::ReduceOp;
using collops::kernels::CanReduce;
using collops::kernels::ForceIsa;
using collops::kernels::ForceNumThreads;
using collops::kernels::Isa;
using collops::kernels::Reduce;
using collops::kernels::RunnableIsas;
using collops::kernels::StreamedOutputBytes;
using reduce_reference::Half;
using reduce_reference::Plain;
using reduce_reference::ReduceOne;

constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kProd,  ReduceOp::kMax,
                             ReduceOp::kMin,   ReduceOp::kAvg,   ReduceOp::kBitAnd,
                             ReduceOp::kBitOr, ReduceOp::kBitXor};

// Random bits are seldom NaN, infinite or subnormal, so a third of the numbers are chosen.
template <typename Element>
typename Element::Stored RandomElement(std::mt19937_64& random) {
  using Stored = typename Element::Stored;
  using Wide = typename Element::Wide;
  using Limits = std::numeric_limits<Wide>;
  const uint64_t bits = random();
  if (bits % 3 != 0) {
    if constexpr (!std::is_integral_v<Wide>) {
      if (bits % 3 == 1)
        return Element::Encode(static_cast<Wide>(static_cast<int64_t>(bits) >> 50));
    }
    Stored value;
    const uint64_t other = random();
    std::memcpy(&value, &other, sizeof(value));
    return value;
  }
  const Wide picked[] = {Wide(0),
                         static_cast<Wide>(-Wide(0)),
                         Limits::max(),
                         Limits::lowest(),
                         Limits::infinity(),
                         static_cast<Wide>(-Limits::infinity()),
                         Limits::quiet_NaN(),
                         Limits::denorm_min(),
                         Wide(1)};
  return Element::Encode(picked[bits / 3 % 9]);
}

struct Case {
  DType dtype;
  ReduceOp op;
  int num_sources;
  int count;
  int shift;  // bytes by which the addresses are misaligned
  int alias;  // the source that is also the destination; -1: none
};

// Settings that must not change the result of a case.
struct Way {
  Isa isa;
  int64_t whole_bytes;
};

std::string Describe(const Case& c, const Way& way) {
  return collops::Concat(collops::Name(c.dtype), " ", collops::Name(c.op), " of ", c.num_sources,
                         " x ", c.count, ", shift ", c.shift, ", alias ", c.alias, ", ",
                         Name(way.isa), ", whole ", way.whole_bytes);
}

constexpr char kPoison = 0x5b;

// One buffer per source and one for the output, each with poison around its elements.
template <typename Element>
struct Buffers {
  using Stored = typename Element::Stored;

  Buffers(const Case& c, std::mt19937_64& random) : shift(c.shift) {
    const size_t bytes = sizeof(Stored) * static_cast<size_t>(c.count) + kMargin;
    memory.assign(static_cast<size_t>(c.num_sources) + 1, std::vector<char>(bytes, kPoison));
    for (int rank = 0; rank < c.num_sources; ++rank) {
      for (int i = 0; i < c.count; ++i) {
        const Stored value = RandomElement<Element>(random);
        std::memcpy(At(rank, i), &value, sizeof(value));
      }
    }
  }

  char* At(int buffer, int i) {
    return memory[static_cast<size_t>(buffer)].data() + 8 + shift +
           sizeof(Stored) * static_cast<size_t>(i);
  }
  Stored Value(int buffer, int i) {
    Stored value;
    std::memcpy(&value, At(buffer, i), sizeof(value));
    return value;
  }

  static constexpr size_t kMargin = 32;
  int shift;
  std::vector<std::vector<char>> memory;
};

template <typename Element>
std::vector<typename Element::Stored> Expected(Buffers<Element>& buffers, const Case& c) {
  std::vector<typename Element::Stored> expected;
  for (int i = 0; i < c.count; ++i) {
    std::vector<typename Element::Stored> terms;
    for (int rank = 0; rank < c.num_sources; ++rank) terms.push_back(buffers.Value(rank, i));
    expected.push_back(reduce_reference::Reference<Element>(terms, c.op));
  }
  return expected;
}

// True if only the elements of `buffer` have changed, and nothing in the other buffers.
template <typename Element>
bool NothingElseChanged(Buffers<Element>& before, Buffers<Element>& after, const Case& c,
                        int buffer) {
  for (int i = 0; i < c.count; ++i) {
    std::memcpy(before.At(buffer, i), after.At(buffer, i), sizeof(typename Element::Stored));
  }
  return before.memory == after.memory;
}

template <typename Element>
void CheckOneWay(const Case& c, const Way& way, Buffers<Element> before,
                 const std::vector<typename Element::Stored>& expected) {
  Buffers<Element> buffers = before;
  std::vector<const void*> sources;
  for (int rank = 0; rank < c.num_sources; ++rank) sources.push_back(buffers.At(rank, 0));
  const int output = c.alias >= 0 ? c.alias : c.num_sources;
  ForceIsa(way.isa);
  Reduce(buffers.At(output, 0), sources.data(), c.num_sources, c.count, c.dtype, c.op,
         way.whole_bytes);
  for (int i = 0; i < c.count; ++i) {
    if (reduce_reference::Same<Element>(buffers.Value(output, i), expected[static_cast<size_t>(i)]))
      continue;
    check::Fail(__FILE__, __LINE__,
                collops::Concat(Describe(c, way), ": element ", i, " is wrong"));
    return;
  }
  if (!NothingElseChanged(before, buffers, c, output)) {
    check::Fail(__FILE__, __LINE__, Describe(c, way) + ": changed memory that is not its own");
  }
}

template <typename Element>
void Check(const Case& c, std::mt19937_64& random) {
  Buffers<Element> buffers(c, random);
  const auto expected = Expected(buffers, c);
  for (const Isa isa : RunnableIsas()) {
    for (const int64_t whole_bytes : {int64_t{0}, StreamedOutputBytes()}) {
      CheckOneWay<Element>(c, {isa, whole_bytes}, buffers, expected);
    }
  }
}

template <typename Element>
void CheckType(DType dtype) {
  std::mt19937_64 random(20261120);
  for (const ReduceOp op : kOps) {
    const bool reducible = !collops::IsBitwise(op) || !collops::IsFloating(dtype);
    EXPECT_EQ(CanReduce(dtype, op), reducible);
    if (!reducible) continue;
    for (const int num_sources : {1, 2, 3, 4, 7}) {
      for (const int count : {0, 1, 7, 63, 64, 65, 255, 257, 1025}) {
        for (const int shift : {0, 1, 4}) {
          Check<Element>({dtype, op, num_sources, count, shift, -1}, random);
        }
        Check<Element>({dtype, op, num_sources, count, 0, num_sources - 1}, random);
        Check<Element>({dtype, op, num_sources, count, 3, 0}, random);
      }
    }
  }
}

}  // namespace

TEST(EveryTypeAndOperation) {
  CheckType<Plain<float>>(DType::kFloat32);
  CheckType<Plain<double>>(DType::kFloat64);
  CheckType<Half<half_reference::kFloat16>>(DType::kFloat16);
  CheckType<Half<half_reference::kBFloat16>>(DType::kBFloat16);
  CheckType<Plain<int8_t>>(DType::kInt8);
  CheckType<Plain<uint8_t>>(DType::kUInt8);
  CheckType<Plain<int16_t>>(DType::kInt16);
  CheckType<Plain<uint16_t>>(DType::kUInt16);
  CheckType<Plain<int32_t>>(DType::kInt32);
  CheckType<Plain<uint32_t>>(DType::kUInt32);
  CheckType<Plain<int64_t>>(DType::kInt64);
  CheckType<Plain<uint64_t>>(DType::kUInt64);
}

TEST(OtherTypesAreNotReduced) {
  for (const DType dtype : {DType::kUndefined, DType::kBool, DType::kComplex32, DType::kComplex64,
                            DType::kComplex128}) {
    for (const ReduceOp op : kOps) EXPECT_FALSE(CanReduce(dtype, op));
  }
}

// Computed by hand, to show a mistake that code and reference have in common.
TEST(IntegersWrap) {
  EXPECT_EQ(ReduceOne<int8_t>({127, 1}, DType::kInt8, ReduceOp::kSum), -128);
  EXPECT_EQ(ReduceOne<uint16_t>({65535, 65535}, DType::kUInt16, ReduceOp::kProd), 1);
  EXPECT_EQ(ReduceOne<int64_t>({INT64_MIN, -1}, DType::kInt64, ReduceOp::kSum), INT64_MAX);
  EXPECT_EQ(ReduceOne<int32_t>({-1, 0}, DType::kInt32, ReduceOp::kMax), 0);
  EXPECT_EQ(ReduceOne<uint32_t>({0xffffffff, 0}, DType::kUInt32, ReduceOp::kMax), 0xffffffffu);
}

TEST(SumsGoInRankOrder) {
  EXPECT_EQ(ReduceOne<float>({0x1p24f, 1, 1}, DType::kFloat32, ReduceOp::kSum), 0x1p24f);
  EXPECT_EQ(ReduceOne<float>({1, 1, 0x1p24f}, DType::kFloat32, ReduceOp::kSum), 0x1p24f + 2);
  // A sum that starts from zero would lose the sign.
  EXPECT_TRUE(std::signbit(ReduceOne<float>({-0.0f, -0.0f}, DType::kFloat32, ReduceOp::kSum)));
  EXPECT_TRUE(std::signbit(ReduceOne<float>({-0.0f}, DType::kFloat32, ReduceOp::kSum)));
}

TEST(HalvesAreRoundedOnce) {
  // float16: 2048 + 1 + 1 is 2050; rounded after each step it would stay 2048.
  EXPECT_EQ(ReduceOne<uint16_t>({0x6800, 0x3c00, 0x3c00}, DType::kFloat16, ReduceOp::kSum), 0x6801);
  // bfloat16: 256 + 1 + 1 is 258.
  EXPECT_EQ(ReduceOne<uint16_t>({0x4380, 0x3f80, 0x3f80}, DType::kBFloat16, ReduceOp::kSum),
            0x4381);
  // 65504 + 65504 - 65504 exceeds float16's range only in between.
  EXPECT_EQ(ReduceOne<uint16_t>({0x7bff, 0x7bff, 0xfbff}, DType::kFloat16, ReduceOp::kSum), 0x7bff);
  // The sum of two subnormals is not flushed.
  EXPECT_EQ(ReduceOne<uint16_t>({0x0001, 0x0002}, DType::kBFloat16, ReduceOp::kSum), 0x0003);
  // avg: (1 + 2) / 2 = 1.5
  EXPECT_EQ(ReduceOne<uint16_t>({0x3c00, 0x4000}, DType::kFloat16, ReduceOp::kAvg), 0x3e00);
}

TEST(SignedZerosAreOrdered) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(ReduceOne<uint16_t>({0x8000, 0x0000}, dtype, ReduceOp::kMax), 0x0000);
    EXPECT_EQ(ReduceOne<uint16_t>({0x0000, 0x8000}, dtype, ReduceOp::kMax), 0x0000);
    EXPECT_EQ(ReduceOne<uint16_t>({0x0000, 0x8000}, dtype, ReduceOp::kMin), 0x8000);
    EXPECT_EQ(ReduceOne<uint16_t>({0x8000, 0x0000}, dtype, ReduceOp::kMin), 0x8000);
  }
  EXPECT_FALSE(std::signbit(ReduceOne<float>({-0.0f, 0.0f}, DType::kFloat32, ReduceOp::kMax)));
  EXPECT_TRUE(std::signbit(ReduceOne<double>({0.0, -0.0}, DType::kFloat64, ReduceOp::kMin)));
}

// Every pattern with every kind of number: widening, rounding and NaNs in all lanes.
void CheckAllPatterns(DType dtype, float (*widen)(uint16_t), uint16_t (*narrow)(float)) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const float number :
       {0.0f, -0.0f, 1.0f, 0x1p-24f, -0x1.8p-14f, 0x1p-133f, 65504.0f, -3e38f}) {
    const std::vector<uint16_t> other(all.size(), narrow(number));
    const void* const sources[] = {all.data(), other.data()};
    for (const Isa isa : RunnableIsas()) {
      std::vector<uint16_t> sums(all.size(), 0x5b5b);
      ForceIsa(isa);
      Reduce(sums.data(), sources, 2, static_cast<int64_t>(all.size()), dtype, ReduceOp::kSum);
      int wrong = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const float sum = widen(all[i]) + widen(other[i]);
        wrong += std::isnan(sum) ? !std::isnan(widen(sums[i])) : sums[i] != narrow(sum);
      }
      if (wrong == 0) continue;
      check::Fail(__FILE__, __LINE__,
                  collops::Concat(collops::Name(dtype), " ", Name(isa), ": ", wrong,
                                  " patterns are wrong with ", number));
    }
  }
}

TEST(EverySixteenBitPatternIsAddedCorrectly) {
  using namespace collops::kernels;
  CheckAllPatterns(DType::kFloat16, Float16ToFloat, FloatToFloat16);
  CheckAllPatterns(DType::kBFloat16, BFloat16ToFloat, FloatToBFloat16);
}

// Sums of more than kLeastSharedBytes are shared among threads.
TEST(ThreadsChangeNothing) {
  constexpr int64_t kCount = (3 << 20) + 12345;
  std::mt19937_64 random(7);
  std::vector<std::vector<uint16_t>> inputs(3, std::vector<uint16_t>(kCount));
  std::vector<const void*> sources;
  for (auto& input : inputs) {
    for (uint16_t& value : input) value = static_cast<uint16_t>(random());
    sources.push_back(input.data());
  }
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    for (const int64_t whole_bytes : {int64_t{0}, StreamedOutputBytes()}) {
      std::vector<uint16_t> alone;
      for (const int num_threads : {1, 2, 3}) {
        ForceNumThreads(num_threads);
        std::vector<uint16_t> sums(kCount + 1, 0x5b5b);
        Reduce(sums.data(), sources.data(), 3, kCount, DType::kFloat16, ReduceOp::kSum,
               whole_bytes);
        EXPECT_EQ(sums.back(), 0x5b5b);
        if (num_threads == 1) alone = sums;
        // Which NaN results from a sum of two NaNs is not defined.
        EXPECT_TRUE(std::equal(sums.begin(), sums.end(), alone.begin(),
                               reduce_reference::Same<Half<half_reference::kFloat16>>));
      }
    }
  }
  ForceNumThreads(1);
}

// max and min give one NaN each, with the same bits everywhere.
TEST(NansOfMaxAndMinAreTheSameEverywhere) {
  for (const uint32_t nan : {0x7f800001u, 0xffc12345u, 0x7fffffffu}) {
    for (const Isa isa : RunnableIsas()) {
      ForceIsa(isa);
      const uint32_t one = 0x3f800000;
      const void* const sources[] = {&one, &nan, &one};
      uint32_t result = 0;
      Reduce(&result, sources, 3, 1, DType::kFloat32, ReduceOp::kMax);
      EXPECT_EQ(result, 0x7fffffffu);
      Reduce(&result, sources, 3, 1, DType::kFloat32, ReduceOp::kMin);
      EXPECT_EQ(result, 0xffffffffu);
    }
  }
}

TEST(NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const ReduceOp op : kOps) {
    if (collops::IsBitwise(op)) continue;
    EXPECT_TRUE(std::isnan(ReduceOne<float>({nan, infinity, 1}, DType::kFloat32, op)));
    EXPECT_TRUE(std::isnan(ReduceOne<float>({1, -nan, -infinity}, DType::kFloat32, op)));
    EXPECT_TRUE(std::isnan(ReduceOne<double>({1, -infinity, nan}, DType::kFloat64, op)));
  }
}
