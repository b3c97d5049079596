// The bodies of the kernels that convert matrices and add a row, on the CPU.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "kernels/cuda_grid.h"
#include "kernels/half_reference.h"
#include "kernels/kernel_table.h"

namespace {

using collops::DType;
using collops::cuda::AddArgs;
using collops::cuda::ConvertArgs;
using collops::cuda::HostBlock;
using collops::cuda::MatrixArgs;
using half_reference::Read;
using half_reference::Write;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// A matrix `shift` elements behind a multiple of 16 bytes, whose consecutive rows, or columns, are
// `ld` elements apart. Poison lies between and around.
struct Matrix {
  Matrix(DType type, int64_t rows, int64_t columns, int64_t gap, int64_t shift, bool transposed)
      : dtype(type) {
    const int64_t ld = (transposed ? rows : columns) + gap;
    row_step = transposed ? 1 : ld;
    column_step = transposed ? ld : 1;
    const int64_t lines = transposed ? columns : rows;
    begin = static_cast<size_t>(shift * SizeOf(dtype));
    chunks.resize(static_cast<size_t>(lines * ld * SizeOf(dtype)) / 16 + 4);
    std::memset(chunks.data(), 0x5b, chunks.size() * 16);
  }
  char* At(int64_t i, int64_t j) {
    return reinterpret_cast<char*>(chunks.data()) + begin +
           (i * row_step + j * column_step) * SizeOf(dtype);
  }
  MatrixArgs Args() { return {At(0, 0), row_step, column_step, dtype}; }
  std::vector<char> Bytes() const {
    const auto* all = reinterpret_cast<const char*>(chunks.data());
    return {all, all + chunks.size() * 16};
  }

  struct alignas(16) Chunk {
    char bytes[16];
  };
  DType dtype;
  int64_t row_step;
  int64_t column_step;
  size_t begin;
  std::vector<Chunk> chunks;
};

// Of magnitudes around the formats' smallest numbers, and up to 2^15: no sum is of two infinities.
float Draw(std::mt19937_64& random) {
  static constexpr int kExponents[] = {-149, -133, -126, -24, -14, -1, 0, 3, 12, 15};
  const float mantissa = static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f;
  return std::ldexp(mantissa, kExponents[random() % 10]);
}

void Fill(Matrix* matrix, int64_t rows, int64_t columns, std::mt19937_64& random) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) Write(matrix->dtype, Draw(random), matrix->At(i, j));
  }
}

template <class Args>
void Run(const Args& args, std::mt19937_64& random) {
  const auto* const kernel = collops::cuda::FindKernel<HostBlock>(Args::kName);
  cuda_grid::Run(cuda_grid::DrawGrid(random), [&](HostBlock& block) { kernel->run(&args, block); });
}

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t gap;
  int64_t shift;
  bool transposed;
};

constexpr Shape kShapes[] = {{0, 5, 0, 0, false},  {5, 0, 0, 0, false},  {1, 1, 0, 0, false},
                             {3, 64, 0, 0, false}, {7, 61, 3, 0, false}, {4, 24, 1, 1, false},
                             {5, 40, 8, 3, false}, {9, 17, 2, 0, true},  {16, 32, 0, 0, true}};

// The bytes of the result as they should be, poison included: `c` with the numbers put in.
std::vector<char> Expected(const Shape& shape, Matrix* a, Matrix* b, const Matrix& c) {
  Matrix copy = c;
  for (int64_t i = 0; i < shape.rows; ++i) {
    for (int64_t j = 0; j < shape.columns; ++j) {
      float value = Read(a->dtype, a->At(i, j));
      if (b != nullptr) value = value + Read(b->dtype, b->At(i, j));
      Write(c.dtype, value, copy.At(i, j));
    }
  }
  return copy.Bytes();
}

}  // namespace

TEST(ConversionsRoundOnce) {
  std::mt19937_64 random(1);
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const Shape& s : kShapes) {
        Matrix a(from, s.rows, s.columns, s.gap, s.shift, s.transposed);
        Matrix c(to, s.rows, s.columns, 2 * s.gap, 0, false);
        Fill(&a, s.rows, s.columns, random);
        const std::vector<char> expected = Expected(s, &a, nullptr, c);
        Run(ConvertArgs{a.Args(), c.Args(), s.rows, s.columns}, random);
        EXPECT_TRUE(c.Bytes() == expected);
      }
    }
  }
}

TEST(ConversionsOverflowAndKeepNans) {
  const uint32_t bits[] = {0x477fefff, 0x477ff000, 0x7f7fffff, 0x7f800000, 0xff7f7fff,
                           0xff800000, 0x7f800001, 0xffc00000, 0x80000000};
  for (const DType to : kTypes) {
    Matrix a(DType::kFloat32, 1, 9, 0, 0, false);
    Matrix c(to, 1, 9, 0, 0, false);
    for (int j = 0; j < 9; ++j) std::memcpy(a.At(0, j), &bits[j], sizeof(bits[j]));
    HostBlock block(0, 1, 32);
    collops::cuda::Convert(ConvertArgs{a.Args(), c.Args(), 1, 9}, block);
    for (int j = 0; j < 9; ++j) {
      char expected[4];
      Write(to, Read(DType::kFloat32, a.At(0, j)), expected);
      const float value = Read(to, c.At(0, j));
      if (std::isnan(value)) EXPECT_TRUE(j == 6 || j == 7);
      if (!std::isnan(value)) EXPECT_EQ(value, Read(to, expected));
    }
  }
}

TEST(MatricesAndARowAreAddedInFloat32) {
  std::mt19937_64 random(2);
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const DType row : kTypes) {
        for (const Shape& s : kShapes) {
          const bool one = random() % 2 == 0;
          Matrix a(from, s.rows, s.columns, s.gap, s.shift, s.transposed);
          Matrix b(row, one ? 1 : s.rows, s.columns, 0, s.shift, false);
          Matrix c(to, s.rows, s.columns, s.gap, s.shift, s.transposed);
          Fill(&a, s.rows, s.columns, random);
          Fill(&b, one ? 1 : s.rows, s.columns, random);
          if (one) b.row_step = 0;
          const std::vector<char> expected = Expected(s, &a, &b, c);
          Run(AddArgs{a.Args(), b.Args(), c.Args(), s.rows, s.columns}, random);
          EXPECT_TRUE(c.Bytes() == expected);
        }
      }
    }
  }
}
