// The product by tile registers, with registers that are arrays: the same cut, packing and order as
// on AMX, on any machine.
#include "collops/kernels/gemm/gemm_matrix_loops.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/half.h"
#include "collops/kernels/vector.h"
#include "kernels/matrices.h"

namespace {

using namespace matrices;

// One register: 16 rows of 64 bytes.
struct Register {
  uint32_t rows[16][16];

  void Load(const void* from, int64_t row_bytes) {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(rows[i], static_cast<const char*>(from) + i * row_bytes, sizeof(rows[i]));
    }
  }
  void Store(void* to, int64_t row_bytes) const {
    for (int i = 0; i < 16; ++i) {
      std::memcpy(static_cast<char*>(to) + i * row_bytes, rows[i], sizeof(rows[i]));
    }
  }
};

thread_local Register sums[2][2];
thread_local Register factors_a[2];
thread_local Register factors_b[2];
thread_local int in_use = 0;

// Stands in for AmxRegisters, with the sums of tdpbf16ps in Intel's Software Developer's Manual:
// the 16 first elements of pairs, the 16 second ones, and then both added to the sum so far.
// Subnormal numbers are kept here.
struct ArrayRegisters {
  ArrayRegisters() { ++in_use; }
  ~ArrayRegisters() { --in_use; }
  ArrayRegisters(const ArrayRegisters&) = delete;
  ArrayRegisters& operator=(const ArrayRegisters&) = delete;

  template <int kRow>
  static void LoadA(const void* from, int64_t row_bytes) {
    factors_a[kRow].Load(from, row_bytes);
  }
  template <int kColumn>
  static void LoadB(const void* from, int64_t row_bytes) {
    factors_b[kColumn].Load(from, row_bytes);
  }
  template <int kRow, int kColumn>
  static void LoadC(const void* from, int64_t row_bytes) {
    sums[kRow][kColumn].Load(from, row_bytes);
  }
  template <int kRow, int kColumn>
  static void StoreC(void* to, int64_t row_bytes) {
    EXPECT_EQ(in_use, 1);
    sums[kRow][kColumn].Store(to, row_bytes);
  }
  template <int kRow, int kColumn>
  static void Zero() {
    sums[kRow][kColumn] = {};
  }

  template <int kRow, int kColumn>
  static void MultiplyAdd() {
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        float pair[2] = {};
        for (int unit = 0; unit < 16; ++unit) {
          const uint32_t a = factors_a[kRow].rows[i][unit];
          const uint32_t b = factors_b[kColumn].rows[unit][j];
          pair[0] += FloatFromBits(a << 16) * FloatFromBits(b << 16);
          pair[1] += FloatFromBits(a & 0xffff0000u) * FloatFromBits(b & 0xffff0000u);
        }
        uint32_t& sum = sums[kRow][kColumn].rows[i][j];
        sum = BitsFromFloat(FloatFromBits(sum) + (pair[0] + pair[1]));
      }
    }
  }
};

// Packs the weight with vectors of 16 bytes.
struct Vectors {
  static constexpr int kVectorBytes = 16;
  static constexpr int64_t kColumnTile = kTilesColumns;
  static void Transpose(Vector<uint32_t, 16> (&rows)[4]) {
    Vector<uint32_t, 16> columns[4];
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) columns[j][i] = rows[i][j];
    }
    std::memcpy(rows, columns, sizeof(columns));
  }
  static Vector<uint32_t, 16> ZeroExtend(Vector<uint16_t, 8> halves) {
    return __builtin_convertvector(halves, Vector<uint32_t, 16>);
  }
};

constexpr GemmKernels kKernels = TileKernels<ArrayRegisters, Vectors>();

GemmPlan Plan(int64_t k, int64_t n, bool trans_weight) {
  return {DType::kBFloat16,         k,        n, trans_weight, kKernels.row_tile,
          kKernels.block_units * 2, &kKernels};
}

Matrix Integers(int64_t rows, int64_t columns, std::mt19937& random) {
  Matrix matrix{rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    matrix.values.push_back(static_cast<float>(static_cast<int>(random() % 17) - 8));
  }
  return matrix;
}

Matrix Normal(int64_t rows, int64_t columns, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Matrix matrix{rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i) {
    matrix.values.push_back(RoundTo(DType::kBFloat16, normal(random)));
  }
  return matrix;
}

// x[rows, k] times weight[k, n], or weight[n, k] if it is transposed.
std::vector<float> PlainLoop(const Matrix& x, const Matrix& weight, bool trans_weight) {
  const int64_t n = trans_weight ? weight.rows : weight.columns;
  std::vector<float> product;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < x.columns; ++k) {
        sum += x.At(i, k) * (trans_weight ? weight.At(j, k) : weight.At(k, j));
      }
      product.push_back(sum);
    }
  }
  return product;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> Multiplied(const Matrix& x, const Matrix& weight, bool trans_weight,
                              const Cut& cut) {
  const int64_t n = trans_weight ? weight.rows : weight.columns;
  std::vector<float> product;
  EXPECT_TRUE(Product(Plan(x.columns, n, trans_weight), x, weight, cut, &product));
  return product;
}

void CheckExact(int64_t rows, int64_t k, int64_t n, std::mt19937& random) {
  const Matrix x = Integers(rows, k, random);
  for (const bool trans_weight : {false, true}) {
    const Matrix weight = trans_weight ? Integers(n, k, random) : Integers(k, n, random);
    const std::vector<float> expected = PlainLoop(x, weight, trans_weight);
    for (const Cut& cut : {Cut{}, Cut{nullptr, true, false}, Cut{nullptr, false, true}}) {
      if (SameBits(Multiplied(x, weight, trans_weight, cut), expected)) continue;
      check::Fail(__FILE__, __LINE__,
                  collops::Concat(rows, " x ", k, " x ", n, trans_weight ? " transposed" : "",
                                  cut.packed_before ? ", packed before" : "",
                                  cut.in_passing ? ", in passing" : "", ": is wrong"));
    }
  }
  EXPECT_EQ(in_use, 0);
}

}  // namespace

TEST(IntegersAreExactAtTheEdgesOfRegisters) {
  std::mt19937 random(1);
  for (const int64_t rows : {0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 65}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 64}) CheckExact(rows, 37, n, random);
  }
}

TEST(IntegersAreExactAtTheEdgesOfBlocks) {
  std::mt19937 random(2);
  for (const int64_t k : {0, 1, 2, 31, 32, 33, 63, 64, 65, 511, 512, 513, 545, 1025}) {
    for (const int64_t n : {3, 40, 385}) CheckExact(18, k, n, random);
  }
  CheckExact(530, 33, 32, random);
}

TEST(TheCutDoesNotMatter) {
  std::mt19937 random(3);
  const Matrix x = Normal(61, 1037, random);
  for (const bool trans_weight : {false, true}) {
    const Matrix weight = trans_weight ? Normal(401, 1037, random) : Normal(1037, 401, random);
    const std::vector<float> whole = Multiplied(x, weight, trans_weight, {});
    for (int i = 0; i < 3; ++i) {
      const Cut cut = {i == 0 ? nullptr : &random, i != 1, i == 2};
      EXPECT_TRUE(SameBits(whole, Multiplied(x, weight, trans_weight, cut)));
    }
  }
}

// A NaN or infinity changes its row or its column, although registers have more rows and columns.
TEST(NansAndInfinitiesStayInTheirRowAndColumn) {
  std::mt19937 random(4);
  Matrix x = Integers(19, 35, random);
  Matrix weight = Integers(21, 35, random);
  for (float& value : x.values) value = value == 0 ? 1 : value;
  for (float& value : weight.values) value = value == 0 ? 1 : value;
  x.values[static_cast<size_t>(4 * 35 + 34)] = std::numeric_limits<float>::quiet_NaN();
  weight.values[static_cast<size_t>(20 * 35 + 3)] = std::numeric_limits<float>::infinity();
  const std::vector<float> product = Multiplied(x, weight, true, {});
  for (int64_t i = 0; i < 19; ++i) {
    for (int64_t j = 0; j < 21; ++j) {
      const float got = product[static_cast<size_t>(i * 21 + j)];
      EXPECT_EQ(got != got, i == 4);
      EXPECT_EQ(got - got != 0, i == 4 || j == 20);
    }
  }
}
