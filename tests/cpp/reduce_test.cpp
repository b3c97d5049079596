// Every dtype and reduction against a slow reference that works on one element at a time.
#include "kernels/reduce.h"

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
#include "core/status.h"
#include "half_reference.h"
#include "reduce_reference.h"

namespace {

using collops::DType;
using collops::ReduceOp;
using collops::kernels::CanReduce;
using collops::kernels::Reduce;
using reduce_reference::Half;
using reduce_reference::Plain;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin,
                             ReduceOp::kAvg};

// Random bits hold NaNs, infinities and subnormals only now and then, so a third are picked.
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
  int shift;  // bytes by which the addresses miss their alignment
  int alias;  // the source that is the destination too; -1: none
};

std::string Describe(const Case& c) {
  return collops::Concat(collops::Name(c.dtype), " ", collops::Name(c.op), " of ", c.num_sources,
                         " x ", c.count, ", shift ", c.shift, ", alias ", c.alias);
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

// True when `buffer` is untouched but for its elements, and all others are untouched altogether.
template <typename Element>
bool NothingElseChanged(Buffers<Element>& before, Buffers<Element>& after, const Case& c,
                        int buffer) {
  for (int i = 0; i < c.count; ++i) {
    std::memcpy(before.At(buffer, i), after.At(buffer, i), sizeof(typename Element::Stored));
  }
  return before.memory == after.memory;
}

template <typename Element>
void Check(const Case& c, std::mt19937_64& random) {
  Buffers<Element> buffers(c, random);
  Buffers<Element> before = buffers;
  const auto expected = Expected(buffers, c);
  std::vector<const void*> sources;
  for (int rank = 0; rank < c.num_sources; ++rank) sources.push_back(buffers.At(rank, 0));
  const int output = c.alias >= 0 ? c.alias : c.num_sources;
  Reduce(buffers.At(output, 0), sources.data(), c.num_sources, c.count, c.dtype, c.op);
  for (int i = 0; i < c.count; ++i) {
    if (reduce_reference::Same<Element>(buffers.Value(output, i), expected[static_cast<size_t>(i)]))
      continue;
    check::Fail(__FILE__, __LINE__, collops::Concat(Describe(c), ": element ", i, " is wrong"));
    return;
  }
  if (!NothingElseChanged(before, buffers, c, output)) {
    check::Fail(__FILE__, __LINE__, Describe(c) + ": changed memory that is not its own");
  }
}

template <typename Element>
void CheckType(DType dtype) {
  std::mt19937_64 random(20261120);
  for (const ReduceOp op : kOps) {
    const bool reducible = op != ReduceOp::kAvg || collops::IsFloating(dtype);
    EXPECT_EQ(CanReduce(dtype, op), reducible);
    if (!reducible) continue;
    for (const int num_sources : {1, 2, 3, 4, 7}) {
      for (const int count : {0, 1, 7, 1023, 1024, 1025, 2500}) {
        for (const int shift : {0, 1, 4}) {
          Check<Element>({dtype, op, num_sources, count, shift, -1}, random);
        }
        Check<Element>({dtype, op, num_sources, count, 0, num_sources - 1}, random);
        Check<Element>({dtype, op, num_sources, count, 3, 0}, random);
      }
    }
  }
}

template <typename T>
T ReduceOne(const std::vector<T>& terms, DType dtype, ReduceOp op) {
  std::vector<const void*> sources;
  for (const T& term : terms) sources.push_back(&term);
  T result{};
  Reduce(&result, sources.data(), static_cast<int>(terms.size()), 1, dtype, op);
  return result;
}

}  // namespace

TEST(Float32) {
  CheckType<Plain<float>>(DType::kFloat32);
}
TEST(Float64) {
  CheckType<Plain<double>>(DType::kFloat64);
}
TEST(Float16) {
  CheckType<Half<half_reference::kFloat16>>(DType::kFloat16);
}
TEST(BFloat16) {
  CheckType<Half<half_reference::kBFloat16>>(DType::kBFloat16);
}
TEST(Int8) {
  CheckType<Plain<int8_t>>(DType::kInt8);
}
TEST(UInt8) {
  CheckType<Plain<uint8_t>>(DType::kUInt8);
}
TEST(Int16) {
  CheckType<Plain<int16_t>>(DType::kInt16);
}
TEST(UInt16) {
  CheckType<Plain<uint16_t>>(DType::kUInt16);
}
TEST(Int32) {
  CheckType<Plain<int32_t>>(DType::kInt32);
}
TEST(UInt32) {
  CheckType<Plain<uint32_t>>(DType::kUInt32);
}
TEST(Int64) {
  CheckType<Plain<int64_t>>(DType::kInt64);
}
TEST(UInt64) {
  CheckType<Plain<uint64_t>>(DType::kUInt64);
}

TEST(OtherTypesAreNotReduced) {
  for (const DType dtype :
       {DType::kUndefined, DType::kBool, DType::kComplex64, DType::kComplex128}) {
    for (const ReduceOp op : kOps) EXPECT_FALSE(CanReduce(dtype, op));
  }
}

// The numbers below are worked out by hand, so that a mistake common to code and reference shows.
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
  // Starting from zero would lose the sign.
  EXPECT_TRUE(std::signbit(ReduceOne<float>({-0.0f, -0.0f}, DType::kFloat32, ReduceOp::kSum)));
  EXPECT_TRUE(std::signbit(ReduceOne<float>({-0.0f}, DType::kFloat32, ReduceOp::kSum)));
}

TEST(HalvesAreRoundedOnce) {
  // float16: 2048 + 1 + 1 is 2050; rounded after each step it would stay 2048.
  EXPECT_EQ(ReduceOne<uint16_t>({0x6800, 0x3c00, 0x3c00}, DType::kFloat16, ReduceOp::kSum), 0x6801);
  // bfloat16: 256 + 1 + 1 is 258.
  EXPECT_EQ(ReduceOne<uint16_t>({0x4380, 0x3f80, 0x3f80}, DType::kBFloat16, ReduceOp::kSum),
            0x4381);
  // 65504 + 65504 - 65504 leaves float16's range on the way only.
  EXPECT_EQ(ReduceOne<uint16_t>({0x7bff, 0x7bff, 0xfbff}, DType::kFloat16, ReduceOp::kSum), 0x7bff);
  // Two subnormals: their sum is kept.
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

TEST(NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const ReduceOp op : kOps) {
    EXPECT_TRUE(std::isnan(ReduceOne<float>({nan, infinity, 1}, DType::kFloat32, op)));
    EXPECT_TRUE(std::isnan(ReduceOne<float>({1, -nan, -infinity}, DType::kFloat32, op)));
    EXPECT_TRUE(std::isnan(ReduceOne<double>({1, -infinity, nan}, DType::kFloat64, op)));
  }
}
