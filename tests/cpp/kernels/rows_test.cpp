// Rows by index on every instruction set and with several threads, against sums and quotients that
// are rounded one by one.
#include "collops/kernels/rows.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"
#include "kernels/half_reference.h"

namespace {

using collops::DType;
using half_reference::Read;
using half_reference::Write;
namespace kernels = collops::kernels;

constexpr DType kFloats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// Rows of random numbers, of which each has copies in places that are drawn; some have none.
struct Rows {
  Rows(DType of, int64_t num_rows, int64_t num_columns, int64_t num_copies, std::mt19937& random)
      : dtype(of), columns(num_columns), row_bytes(columns * collops::SizeOf(dtype)) {
    places.rows = num_rows;
    places.copies = num_copies;
    positions.assign(static_cast<size_t>(num_rows * num_copies), -1);
    for (int64_t& position : positions) {
      if (random() % 4 != 0) position = used++;
    }
    for (size_t i = positions.size(); i > 1; --i)
      std::swap(positions[i - 1], positions[random() % i]);
    places.positions = positions.data();
    values.resize(static_cast<size_t>(num_rows * row_bytes));
    for (int64_t i = 0; i < num_rows * columns; ++i) Write(dtype, Number(random), At(i));
    for (size_t i = 0; i < positions.size(); ++i) weights.push_back(Number(random));
  }
  static float Number(std::mt19937& random) {
    const float mantissa = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
    return std::ldexp(mantissa, static_cast<int>(random() % 20) - 10);
  }
  char* At(int64_t i) { return values.data() + i * collops::SizeOf(dtype); }

  DType dtype;
  int64_t columns;
  int64_t row_bytes;
  int64_t used = 0;
  std::vector<int64_t> positions;
  std::vector<char> values;
  std::vector<float> weights;
  kernels::RowPlaces places;
};

// Rounds what the compiler might keep wider, or fuse with a sum.
float Rounded(float value) {
  const volatile float rounded = value;
  return rounded;
}

std::vector<char> WeightedSumsOneByOne(Rows& rows, const std::vector<char>& from, bool weighted) {
  std::vector<char> sums(rows.values.size());
  const int64_t element = collops::SizeOf(rows.dtype);
  for (int64_t t = 0; t < rows.places.rows; ++t) {
    for (int64_t column = 0; column < rows.columns; ++column) {
      float sum = 0;
      for (int64_t i = t * rows.places.copies; i < (t + 1) * rows.places.copies; ++i) {
        const int64_t position = rows.positions[static_cast<size_t>(i)];
        if (position < 0) continue;
        const float value =
            Read(rows.dtype, from.data() + position * rows.row_bytes + column * element);
        sum =
            Rounded(sum + Rounded(weighted ? rows.weights[static_cast<size_t>(i)] * value : value));
      }
      Write(rows.dtype, sum, sums.data() + t * rows.row_bytes + column * element);
    }
  }
  return sums;
}

void CheckSums(Rows rows) {
  rows.places.stride = rows.row_bytes;
  std::vector<char> spread(static_cast<size_t>(rows.used * rows.row_bytes));
  kernels::SpreadRows(rows.places, rows.values.data(), rows.row_bytes, nullptr, spread.data());
  for (size_t i = 0; i < rows.positions.size(); ++i) {
    if (rows.positions[i] < 0 || rows.row_bytes == 0) continue;
    const int64_t row = static_cast<int64_t>(i) / rows.places.copies;
    EXPECT_EQ(
        std::memcmp(spread.data() + rows.positions[i] * rows.row_bytes,
                    rows.values.data() + row * rows.row_bytes, static_cast<size_t>(rows.row_bytes)),
        0);
  }
  for (const bool weighted : {true, false}) {
    const std::vector<char> wanted = WeightedSumsOneByOne(rows, spread, weighted);
    for (const kernels::Isa isa : kernels::RunnableIsas()) {
      kernels::ForceIsa(isa);
      std::vector<char> sums(wanted.size(), 0x5b);
      kernels::WeightedSums(rows.places, rows.dtype, spread.data(), rows.columns,
                            weighted ? rows.weights.data() : nullptr, sums.data());
      if (sums == wanted) continue;
      check::Fail(__FILE__, __LINE__,
                  collops::Concat(collops::Name(rows.dtype), " ", Name(isa), ", ", rows.columns,
                                  " columns, weighted ", weighted, ": is wrong"));
    }
  }
}

void CheckQuantised(Rows rows) {
  const int64_t element = collops::SizeOf(rows.dtype);
  rows.places.stride = rows.columns + 4;
  std::vector<char> wanted(static_cast<size_t>(rows.used * rows.places.stride));
  for (size_t i = 0; i < rows.positions.size(); ++i) {
    if (rows.positions[i] < 0) continue;
    const char* const row =
        rows.values.data() + static_cast<int64_t>(i) / rows.places.copies * rows.row_bytes;
    float most = 0;
    for (int64_t column = 0; column < rows.columns; ++column) {
      most = std::fmax(most, std::fabs(Read(rows.dtype, row + column * element)));
    }
    const float scale = Rounded(most / 127);
    char* const to = wanted.data() + rows.positions[i] * rows.places.stride;
    for (int64_t column = 0; column < rows.columns; ++column) {
      const float value = Read(rows.dtype, row + column * element);
      const float whole = scale == 0 ? 0 : std::nearbyint(Rounded(value / scale));
      to[column] =
          static_cast<char>(static_cast<int8_t>(std::fmin(std::fmax(whole, -127.0f), 127.0f)));
    }
    std::memcpy(to + rows.columns, &scale, sizeof(scale));
  }
  for (const kernels::Isa isa : kernels::RunnableIsas()) {
    kernels::ForceIsa(isa);
    std::vector<char> quantised(wanted.size(), 0x5b);
    kernels::QuantizeRows(rows.places, rows.dtype, rows.values.data(), rows.columns,
                          quantised.data());
    if (quantised == wanted) continue;
    check::Fail(__FILE__, __LINE__,
                collops::Concat(collops::Name(rows.dtype), " ", Name(isa), ", ", rows.columns,
                                " columns: is wrong"));
  }
}

}  // namespace

TEST(RowsAreSpreadSummedAndQuantised) {
  std::mt19937 random(1);
  for (const DType dtype : kFloats) {
    for (const int64_t copies : {1, 2, 5}) {
      for (const int64_t columns : {1, 3, 4, 5, 8, 15, 16, 17, 33, 127}) {
        CheckSums({dtype, 6, columns, copies, random});
        CheckQuantised({dtype, 6, columns, copies, random});
      }
    }
    CheckSums({dtype, 3, 0, 2, random});
    CheckSums({dtype, 0, 5, 2, random});
    CheckQuantised({dtype, 2, 0, 2, random});
  }
}

TEST(ThreadsGiveTheSameRows) {
  std::mt19937 random(2);
  kernels::ForceNumThreads(3);
  for (const DType dtype : kFloats) {
    CheckSums({dtype, 701, 1025, 3, random});
    CheckQuantised({dtype, 701, 1025, 3, random});
  }
  kernels::ForceNumThreads(1);
}

// Halves to even, zeros, a scale that is subnormal or becomes 0, an infinity and a NaN.
TEST(KnownQuotients) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float rows[][4] = {
      {127, -2.5f, 3.5f, 0.5f},      {0, -0.0f, 0, 0},
      {0x1p-149f, 0, 0, -0x1p-149f}, {190 * 0x1p-149f, -190 * 0x1p-149f, 3 * 0x1p-149f, 0},
      {kInfinity, 1, -kInfinity, 0}, {std::nanf(""), 1, 2, 3}};
  const int8_t wanted[][4] = {{127, -2, 4, 0}, {}, {}, {127, -127, 3, 0}, {}, {}};
  const int64_t positions[] = {0, 1, 2, 3, 4, 5};
  for (const kernels::Isa isa : kernels::RunnableIsas()) {
    kernels::ForceIsa(isa);
    char out[6 * 8];
    kernels::QuantizeRows({positions, 6, 1, 8}, DType::kFloat32, rows, 4, out);
    for (int row = 0; row < 6; ++row) EXPECT_EQ(std::memcmp(out + 8 * row, wanted[row], 4), 0);
    float scale;
    std::memcpy(&scale, out + 4 * 8 + 4, 4);
    EXPECT_EQ(scale, kInfinity);
    std::memcpy(&scale, out + 5 * 8 + 4, 4);
    EXPECT_TRUE(std::isnan(scale));
  }
}

TEST(RangesOfRowsAreCopiedByAnyNumberOfThreads) {
  constexpr int64_t kRows = 1200;
  constexpr int64_t kBytes = 4099;
  const std::vector<kernels::RowRange> ranges = {
      {1100, 0, 100}, {0, 100, 0}, {0, 100, 999}, {999, 1099, 101}};
  for (const bool has_scales : {false, true}) {
    const int64_t stride = kBytes + (has_scales ? 4 : 0);
    std::vector<char> from(static_cast<size_t>(kRows * stride));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + i / 251);
    for (const int threads : {1, 3}) {
      kernels::ForceNumThreads(threads);
      std::vector<char> to(static_cast<size_t>(kRows * kBytes), 0x5b);
      std::vector<float> scales(kRows);
      kernels::CopyRows(ranges, from.data(), kBytes, to.data(),
                        has_scales ? scales.data() : nullptr);
      for (const kernels::RowRange& range : ranges) {
        for (int64_t row = 0; row < range.rows; ++row) {
          const char* const source = from.data() + (range.from + row) * stride;
          EXPECT_EQ(std::memcmp(to.data() + (range.to + row) * kBytes, source, kBytes), 0);
          if (!has_scales) continue;
          EXPECT_EQ(std::memcmp(&scales[static_cast<size_t>(range.to + row)], source + kBytes, 4),
                    0);
        }
      }
    }
  }
  kernels::ForceNumThreads(1);
}
