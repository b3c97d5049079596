// A reduction that goes on in float32 from host to host, on every instruction set: the same bits as
// one Reduce() over all sources.
#include "collops/kernels/reduce/reduce.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/thread_pool.h"

namespace {

using collops::Concat;
using collops::DType;
using collops::ReduceOp;
using collops::kernels::ForceIsa;
using collops::kernels::ForceNumThreads;
using collops::kernels::Isa;
using collops::kernels::Reduce;
using collops::kernels::RunnableIsas;
using collops::kernels::RunningSum;
using collops::kernels::StoreSum;

constexpr int kSources = 5;

// Every pattern occurs, subnormals and infinities among them, except NaN: which of two NaNs a sum
// keeps is not promised.
std::vector<uint16_t> Patterns(DType dtype, int64_t count, std::mt19937& random) {
  const uint16_t infinity = dtype == DType::kFloat16 ? 0x7c00 : 0x7f80;
  std::vector<uint16_t> patterns(static_cast<size_t>(count));
  for (uint16_t& pattern : patterns) {
    pattern = static_cast<uint16_t>(random());
    if ((pattern & 0x7fff) > infinity) pattern &= 0x3fff;
  }
  return patterns;
}

// Sources 0 to `cut` - 1 on one host, which may be none, the others on a second one.
void Check(DType dtype, ReduceOp op, int64_t count, int cut, int shift, std::mt19937& random) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<const void*> sources;
  for (int i = 0; i < kSources; ++i) {
    const std::vector<uint16_t> patterns = Patterns(dtype, count, random);
    memory.emplace_back(static_cast<size_t>(count * 2 + shift));
    std::memcpy(memory.back().data() + shift, patterns.data(), static_cast<size_t>(count * 2));
    sources.push_back(memory.back().data() + shift);
  }
  const auto elements = static_cast<size_t>(count);
  std::vector<uint16_t> wanted(elements);
  Reduce(wanted.data(), sources.data(), kSources, count, dtype, op);

  std::vector<float> sums(elements + 1, 77.0F);
  const float* before = nullptr;
  if (cut > 0) {
    RunningSum(sums.data(), nullptr, sources.data(), cut, count, dtype, op);
    before = sums.data();
  }
  RunningSum(sums.data(), before, sources.data() + cut, kSources - cut, count, dtype, op);
  EXPECT_EQ(sums.back(), 77.0F);
  const float* const partials[] = {sums.data()};
  std::vector<uint16_t> got(elements);
  StoreSum(dtype, partials, 1, count, nullptr, 1, count, got.data(), count,
           op == ReduceOp::kAvg ? static_cast<float>(kSources) : 1.0F);
  const std::string what = Concat("dtype ", static_cast<int>(dtype), " op ", static_cast<int>(op),
                                  " count ", count, " cut ", cut, " shift ", shift);
  EXPECT_EQ(got == wanted ? what : "differs: " + what, what);
}

}  // namespace

TEST(SameBitsAsOneReduce) {
  ForceNumThreads(1);
  std::mt19937 random(7);
  for (const Isa isa : RunnableIsas()) {
    ForceIsa(isa);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kAvg}) {
        for (const int64_t count : {1, 7, 31, 64, 4099}) {
          for (int cut = 0; cut < kSources; ++cut) Check(dtype, op, count, cut, cut % 2, random);
        }
      }
    }
  }
}

TEST(SameBitsOnSeveralThreads) {
  ForceNumThreads(3);
  std::mt19937 random(11);
  Check(DType::kBFloat16, ReduceOp::kSum, (1 << 20) + 5, 2, 0, random);
  ForceNumThreads(1);
}
