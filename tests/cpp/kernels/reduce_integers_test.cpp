// Reductions of integers: bits, averages, and sums that are divided later, on every instruction
// set.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/reduce/reduce.h"
#include "kernels/reduce_reference.h"

namespace {

using collops::DType;
using collops::ReduceOp;
using collops::kernels::ForceIsa;
using collops::kernels::Isa;
using collops::kernels::Reduce;
using collops::kernels::RunnableIsas;
using reduce_reference::ReduceOne;

}  // namespace

TEST(Bits) {
  EXPECT_EQ(ReduceOne<int8_t>({0x6c, -1, 0x3a}, DType::kInt8, ReduceOp::kBitAnd), 0x28);
  EXPECT_EQ(ReduceOne<int8_t>({0x6c, 0x3a}, DType::kInt8, ReduceOp::kBitOr), 0x7e);
  EXPECT_EQ(ReduceOne<int64_t>({-1, 5, 1}, DType::kInt64, ReduceOp::kBitXor), -5);
  EXPECT_EQ(ReduceOne<uint16_t>({0xf0f0, 0x0ff0}, DType::kUInt16, ReduceOp::kBitXor), 0xff00);
}

TEST(AveragesAreTruncated) {
  EXPECT_EQ(ReduceOne<int32_t>({-3, -4}, DType::kInt32, ReduceOp::kAvg), -3);
  EXPECT_EQ(ReduceOne<int8_t>({5, 2}, DType::kInt8, ReduceOp::kAvg), 3);
  // The sums wrap: -56, 44, -2^31 and -2.
  EXPECT_EQ(ReduceOne<int8_t>({100, 100}, DType::kInt8, ReduceOp::kAvg), -28);
  EXPECT_EQ(ReduceOne<uint8_t>({200, 100}, DType::kUInt8, ReduceOp::kAvg), 22);
  EXPECT_EQ(ReduceOne<int32_t>({INT32_MAX, 1}, DType::kInt32, ReduceOp::kAvg), INT32_MIN / 2);
  EXPECT_EQ(ReduceOne<int64_t>({INT64_MAX, INT64_MAX}, DType::kInt64, ReduceOp::kAvg), -1);
  EXPECT_EQ(ReduceOne<uint64_t>({UINT64_MAX, 0}, DType::kUInt64, ReduceOp::kAvg), UINT64_MAX / 2);
  EXPECT_EQ(ReduceOne<int64_t>({INT64_MIN}, DType::kInt64, ReduceOp::kAvg), INT64_MIN);
}

namespace {

// Each numerator and divisor next to a multiple, where a rounded quotient would be a whole number.
template <typename T>
void CheckDivision(DType dtype) {
  for (const int divisor : {1, 2, 3, 7, 127, 128, 200, 255, 1023, 4096}) {
    for (int step = 0; step < 3000; ++step) {
      const int64_t multiple = (std::numeric_limits<T>::max() / divisor - step) * int64_t{divisor};
      const int64_t below = std::numeric_limits<T>::max() - 1;
      const int64_t next = std::min(multiple, below) + 1;
      for (const int64_t near : {multiple - 1, multiple, next, -multiple, 1 - multiple}) {
        const T value = static_cast<T>(near);
        const void* const source = &value;
        T result{};
        Reduce(&result, &source, 1, 1, dtype, ReduceOp::kAvg, 0, divisor);
        EXPECT_EQ(result, static_cast<T>(static_cast<int64_t>(value) / divisor));
      }
    }
  }
}

}  // namespace

TEST(DivisorsOfAnySize) {
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    CheckDivision<int8_t>(DType::kInt8);
    CheckDivision<uint8_t>(DType::kUInt8);
    CheckDivision<int16_t>(DType::kInt16);
    CheckDivision<uint16_t>(DType::kUInt16);
    CheckDivision<int32_t>(DType::kInt32);
    CheckDivision<uint32_t>(DType::kUInt32);
    CheckDivision<int64_t>(DType::kInt64);
  }
}

// A sum that is divided at its end has the bits of one reduction.
TEST(AverageOfASum) {
  for (const double first : {0.1, 1e300, -7.0}) {
    const double terms[] = {first, 0.7, 3.3, -0.9};
    const void* all[] = {&terms[0], &terms[1], &terms[2], &terms[3]};
    double sum = 0, got = 0, wanted = 0;
    Reduce(&sum, all, 2, 1, DType::kFloat64, ReduceOp::kSum);
    const void* const rest[] = {&sum, &terms[2], &terms[3]};
    Reduce(&got, rest, 3, 1, DType::kFloat64, ReduceOp::kAvg, 0, 4);
    Reduce(&wanted, all, 4, 1, DType::kFloat64, ReduceOp::kAvg);
    EXPECT_EQ(got, wanted);
  }
}
