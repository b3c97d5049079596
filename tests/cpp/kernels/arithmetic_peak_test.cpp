// The counts of the arithmetic peak, for every set of kernels that this machine has.
#include <cstdint>

#include "../../../bench/peak.h"
#include "check.h"
#include "collops/core/dtype.h"
#include "collops/kernels/isa.h"

namespace {

using bench::RunArithmetic;
using collops::DType;
using namespace collops::kernels;

}  // namespace

TEST(OperationsAreCounted) {
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const int64_t once = RunArithmetic(dtype, 1);
      EXPECT_TRUE(once > 0);
      EXPECT_EQ(RunArithmetic(dtype, 1000), 1000 * once);
    }
    EXPECT_EQ(RunArithmetic(DType::kInt32, 1000), 0);
  }
}

// One bfmmla is 16 products, one fmla 4.
TEST(BfmmlaCountsFourTimesAsMuch) {
  if (!Has(Extension::kBfmmla)) return;
  ForceIsa(Isa::kNeon);
  const int64_t blocks = RunArithmetic(DType::kBFloat16, 10);
  AllowExtensions(false);
  EXPECT_EQ(blocks, 4 * RunArithmetic(DType::kBFloat16, 10));
  AllowExtensions(true);
}
