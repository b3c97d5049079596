// StoreSum(), WidenInt8() and ScaleSums() on every instruction set, against sums that are added,
// scaled and rounded one by one.
#include "collops/kernels/reduce/reduce.h"

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
#include "kernels/half_reference.h"

namespace {

using collops::DType;
using collops::kernels::ForceIsa;
using collops::kernels::ForceNumThreads;
using collops::kernels::Isa;
using collops::kernels::RunnableIsas;
using collops::kernels::StoreSum;
using collops::kernels::SumTree;
using collops::kernels::TreeWithin;
using half_reference::Read;
using half_reference::Write;

constexpr char kPoison = 0x5b;

struct Case {
  DType dtype;
  int num_partials;
  int64_t rows;
  int64_t columns;
  bool has_residual;
  int shift;  // bytes by which residual and output are misaligned
  float divisor = 1.0f;
  bool by_tree = false;  // the partials are leaves, else one after the other
};

// Numbers of every size, and sometimes special values.
float Number(std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,      -0.0f,      0x1p-140f, 0x1p-25f,
                           kInfinity, -kInfinity, 65519.0f,  std::nanf("")};
  const uint32_t bits = static_cast<uint32_t>(random());
  if (bits % 40 == 0) return special[bits / 40 % 8];
  const float mantissa = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  return std::ldexp(mantissa, static_cast<int>(bits % 41) - 22);
}

struct Data {
  Data(const Case& c, std::mt19937& random)
      : ld(c.columns + 3),
        ld_out(c.columns + 2),
        element(collops::SizeOf(c.dtype)),
        partials(static_cast<size_t>(c.num_partials)),
        residual(static_cast<size_t>(c.shift + c.columns * element)),
        out(static_cast<size_t>(c.shift + (c.rows * ld_out + 1) * element), kPoison),
        shift(c.shift) {
    for (std::vector<float>& partial : partials) {
      for (int64_t i = 0; i < c.rows * ld; ++i) partial.push_back(Number(random));
    }
    for (int64_t j = 0; j < c.columns; ++j) Write(c.dtype, Number(random), Residual(j));
  }
  char* Residual(int64_t j) { return residual.data() + shift + j * element; }
  char* Out(int64_t i, int64_t j) { return out.data() + shift + (i * ld_out + j) * element; }

  int64_t ld;
  int64_t ld_out;
  int64_t element;
  std::vector<std::vector<float>> partials;
  std::vector<char> residual;
  std::vector<char> out;
  int shift;
};

float SumOf(const float* values, int count, bool by_tree) {
  if (count == 1) return *values;
  int left = by_tree ? 1 : count - 1;
  while (by_tree && left * 2 < count) left *= 2;
  return SumOf(values, left, by_tree) + SumOf(values + left, count - left, by_tree);
}

// The expected output, including its poison.
std::vector<char> Expected(const Case& c, Data data) {
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      std::vector<float> values;
      for (const std::vector<float>& partial : data.partials) {
        values.push_back(partial[static_cast<size_t>(i * data.ld + j)]);
      }
      float sum = SumOf(values.data(), c.num_partials, c.by_tree);
      sum /= c.divisor;
      if (c.has_residual) sum += Read(c.dtype, data.Residual(j));
      Write(c.dtype, sum, data.Out(i, j));
    }
  }
  return std::move(data.out);
}

void Run(const Case& c, Data* data) {
  std::vector<const float*> partials;
  for (const std::vector<float>& partial : data->partials) partials.push_back(partial.data());
  const SumTree tree = TreeWithin(c.num_partials, 0, c.num_partials);
  StoreSum(c.dtype, partials.data(), c.num_partials, data->ld,
           c.has_residual ? data->Residual(0) : nullptr, c.rows, c.columns, data->Out(0, 0),
           data->ld_out, c.divisor, c.by_tree ? &tree : nullptr);
}

// Makes all NaNs equal, because any NaN is accepted.
void MakeNansEqual(const Case& c, Data* data) {
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      if (std::isnan(Read(c.dtype, data->Out(i, j))))
        Write(c.dtype, std::nanf(""), data->Out(i, j));
    }
  }
}

void Check(const Case& c, std::mt19937& random) {
  const Data before(c, random);
  Data wanted = before;
  wanted.out = Expected(c, before);
  MakeNansEqual(c, &wanted);
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    Data data = before;
    Run(c, &data);
    MakeNansEqual(c, &data);
    if (data.out == wanted.out && data.residual == before.residual) continue;
    check::Fail(__FILE__, __LINE__,
                collops::Concat(collops::Name(c.dtype), " ", Name(isa), ", ", c.num_partials,
                                " of ", c.rows, " x ", c.columns, ", residual ", c.has_residual,
                                ", shift ", c.shift, ", divisor ", c.divisor,
                                c.by_tree ? ", by the tree" : "", ": is wrong"));
  }
}

}  // namespace

TEST(SumsAreAddedInOrderOrByTheTreeAndRoundedOnce) {
  std::mt19937 random(1);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const int num_partials : {1, 2, 3, 5, 12}) {
      for (const int64_t columns : {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 384}) {
        Check({dtype, num_partials, 3, columns, true, 0}, random);
        Check({dtype, num_partials, 2, columns, false, 1}, random);
        Check({dtype, num_partials, 1, columns, true, 3}, random);
        Check({dtype, num_partials, 2, columns, true, 0, 3.0f}, random);
        Check({dtype, num_partials, 2, columns, true, 0, 1.0f, true}, random);
      }
      Check({dtype, num_partials, 0, 5, true, 0}, random);
    }
  }
}

TEST(ThreadsDoNotMatter) {
  std::mt19937 random(2);
  ForceNumThreads(2);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    Check({dtype, 3, 1201, 307, true, 0}, random);
  }
  ForceNumThreads(1);
}

// Computed by hand, to show a mistake that code and reference have in common.
TEST(KnownSums) {
  const float first[] = {0x1p24f, 1, 256, 0x1p-133f, -0.0f};
  const float second[] = {1, 1, 1, 0x1p-133f, -0.0f};
  const float third[] = {1, 0x1p24f, 1, 0, -0.0f};
  const float* const partials[] = {first, second, third};
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    float sums[5] = {};
    StoreSum(DType::kFloat32, partials, 3, 5, nullptr, 1, 5, sums, 5);
    EXPECT_EQ(sums[0], 0x1p24f);      // 1 is half a last place, each time
    EXPECT_EQ(sums[1], 0x1p24f + 2);  // but not when it is added to 1 first
    EXPECT_TRUE(std::signbit(sums[4]));
    uint16_t halves[5] = {};
    StoreSum(DType::kBFloat16, partials, 3, 5, nullptr, 1, 5, halves, 5);
    EXPECT_EQ(halves[2], 0x4381);  // 258: rounded after each addition it would stay 256
    EXPECT_EQ(halves[3], 0x0002);  // a subnormal
  }
}

TEST(TheOutputMayBeAPartial) {
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    std::vector<float> a(100, 1.5f);
    const std::vector<float> b(100, 2.0f);
    const float* const partials[] = {b.data(), a.data()};
    StoreSum(DType::kFloat32, partials, 2, 50, nullptr, 2, 50, a.data(), 50);
    EXPECT_EQ(a, std::vector<float>(100, 3.5f));
  }
}

// In any number of threads, at odd addresses, past 2^24, which float32 does not hold exactly.
TEST(SumsOfInt8AreScaledAndRoundedStepByStep) {
  std::mt19937 random(3);
  for (const int64_t columns : {16, 48, 4112}) {
    for (const int64_t num_scales : {int64_t{1}, columns}) {
      const int64_t count = columns * (columns > 4000 ? 41 : 3);
      const auto total = static_cast<size_t>(count);
      std::vector<char> bytes(total + 1), sums(4 * total + 1), scales(2 * total + 1);
      for (char& byte : bytes) byte = static_cast<char>(random());
      for (int64_t i = 0; i < num_scales; ++i)
        Write(DType::kFloat16, num_scales == 1 ? -0.0f : Number(random), scales.data() + 1 + 2 * i);
      const float shift = Number(random);
      std::vector<char> wanted(2 * total + 1, kPoison);
      for (size_t i = 0; i < total; ++i) {
        const int32_t sum = bytes[i + 1] * (i % 3 == 0 ? 1 : 1234567);
        std::memcpy(sums.data() + 1 + 4 * i, &sum, 4);
        const volatile float shifted = static_cast<float>(sum) + shift;
        const size_t column = i % static_cast<size_t>(num_scales);
        const float scale = Read(DType::kFloat16, scales.data() + 1 + 2 * column);
        const volatile float scaled = shifted * scale;
        const float any_nan = std::isnan(scaled) ? std::nanf("") : scaled;
        Write(DType::kFloat16, any_nan, wanted.data() + 1 + 2 * i);
      }
      for (const Isa isa : RunnableIsas()) {
        ForceIsa(isa);
        ForceNumThreads(columns > 4000 ? 3 : 1);
        std::vector<char> out(wanted.size(), kPoison), wide(sums.size());
        collops::kernels::WidenInt8(bytes.data() + 1, count, wide.data() + 1);
        collops::kernels::ScaleSums(sums.data() + 1, count, shift, scales.data() + 1, num_scales,
                                    out.data() + 1);
        for (size_t i = 0; i < total; ++i) {
          int32_t widened = 0;
          std::memcpy(&widened, wide.data() + 1 + 4 * i, 4);
          EXPECT_EQ(widened, int32_t{static_cast<int8_t>(bytes[i + 1])});
          if (std::isnan(Read(DType::kFloat16, out.data() + 1 + 2 * i)))
            Write(DType::kFloat16, std::nanf(""), out.data() + 1 + 2 * i);
        }
        EXPECT_TRUE(out == wanted);
      }
      ForceNumThreads(1);
    }
  }
}
