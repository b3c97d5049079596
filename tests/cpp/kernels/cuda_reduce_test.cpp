// The body of the kernel that reduces slices, on the CPU, against kernels/reduce bit for bit.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "collops/kernels/reduce/reduce.h"
#include "kernels/cuda_peers.h"
#include "kernels/half_reference.h"
#include "kernels/kernel_table.h"

namespace {

using collops::DType;
using collops::ReduceOp;
using collops::cuda::HostBlock;
using collops::cuda::ReduceSlicesArgs;
using cuda_peers::Buffer;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt8,    DType::kUInt8,   DType::kInt16,   DType::kUInt16,
                            DType::kInt32,   DType::kUInt32,  DType::kInt64,   DType::kUInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kProd,  ReduceOp::kMax,
                             ReduceOp::kMin,   ReduceOp::kAvg,   ReduceOp::kBitAnd,
                             ReduceOp::kBitOr, ReduceOp::kBitXor};

// Misalignments in bytes, of the output, of the own slice and of the staging.
struct Shifts {
  size_t output;
  size_t own;
  size_t staging;
};

struct Case {
  DType dtype;
  ReduceOp op;
  int rank;
  int rank_size;
  int64_t count;
  Shifts shifts;
  size_t gap;  // bytes between the slices in the staging
  bool in_place;
};

std::string Describe(const Case& c) {
  return collops::Concat(Name(c.dtype), " ", Name(c.op), ", rank ", c.rank, " of ", c.rank_size,
                         ", ", c.count, " elements, shifts ", c.shifts.output, " ", c.shifts.own,
                         " ", c.shifts.staging, ", gap ", c.gap, c.in_place ? ", in place" : "");
}

// Numbers of every kind: any bits, and those of reals often small, special, or the same.
void Fill(char* to, size_t bytes, DType dtype, std::mt19937_64& random) {
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<char>(random());
  const auto element = static_cast<size_t>(SizeOf(dtype));
  static constexpr uint8_t kTops[] = {0x00, 0x80, 0x3f, 0xbf, 0x40, 0x7f, 0xff, 0x7c};
  for (size_t i = 0; i + element <= bytes; i += element) {
    const uint64_t draw = random();
    if (draw % 4 == 0) std::memset(to + i, 0, element);
    if (draw % 4 < 3) to[i + element - 1] = static_cast<char>(kTops[draw / 4 % 8]);
  }
}

bool IsNan(const char* number, DType dtype) {
  double value = 0;
  if (dtype == DType::kFloat64) std::memcpy(&value, number, sizeof(value));
  if (SizeOf(dtype) <= 4 && IsFloating(dtype)) value = half_reference::Read(dtype, number);
  return std::isnan(value);
}

// Any NaN of a sum or product equals any other: which one results is not defined. Those of max and
// min have the same bits.
bool SameNumber(const char* a, const char* b, const Case& c) {
  const bool any_nan = c.op != ReduceOp::kMax && c.op != ReduceOp::kMin;
  if (any_nan && IsNan(a, c.dtype) && IsNan(b, c.dtype)) return true;
  return std::memcmp(a, b, static_cast<size_t>(SizeOf(c.dtype))) == 0;
}

void Check(const Case& c, std::mt19937_64& random) {
  const auto element = static_cast<size_t>(SizeOf(c.dtype));
  const size_t bytes = static_cast<size_t>(c.count) * element;
  const size_t stride = bytes + c.gap;
  Buffer output(c.count * SizeOf(c.dtype), c.shifts.output);
  Buffer own(c.count * SizeOf(c.dtype), c.in_place ? c.shifts.output : c.shifts.own);
  Buffer staging(static_cast<int64_t>(stride) * c.rank_size, c.shifts.staging);
  Fill(own.data(), bytes, c.dtype, random);
  std::vector<const void*> sources;
  for (int rank = 0, place = 0; rank < c.rank_size; ++rank) {
    char* const slice = staging.data() + stride * static_cast<size_t>(place);
    sources.push_back(rank == c.rank ? own.data() : slice);
    if (rank == c.rank) continue;
    Fill(slice, bytes, c.dtype, random);
    ++place;
  }
  std::vector<char> expected(bytes + 1);
  collops::kernels::Reduce(expected.data(), sources.data(), c.rank_size, c.count, c.dtype, c.op);

  Buffer& target = c.in_place ? own : output;
  const Buffer staged = staging;
  ReduceSlicesArgs args = {target.data(), own.data(), staging.data(), static_cast<int64_t>(stride),
                           c.count,       c.rank,     c.rank_size,    c.dtype,
                           c.op};
  if (c.rank_size == 1) args.staging = nullptr;
  const auto* const kernel = collops::cuda::FindKernel<HostBlock>(ReduceSlicesArgs::kName);
  cuda_grid::Run(cuda_grid::DrawGrid(random), [&](HostBlock& block) { kernel->run(&args, block); });
  for (size_t i = 0; i < bytes; i += element) {
    if (SameNumber(target.data() + i, expected.data() + i, c)) continue;
    return check::Fail(__FILE__, __LINE__,
                       collops::Concat(Describe(c), ": element ", i / element, " is wrong"));
  }
  if (!target.HasPoisonAround() || !staging.Equals(staged)) {
    check::Fail(__FILE__, __LINE__, Describe(c) + ": changed memory that is not its own");
  }
}

}  // namespace

TEST(EveryTypeAndOperationHasTheBitsOfTheCpu) {
  std::mt19937_64 random(20261124);
  for (const DType dtype : kTypes) {
    const auto element = static_cast<size_t>(SizeOf(dtype));
    for (const ReduceOp op : kOps) {
      if (!collops::kernels::CanReduce(dtype, op)) continue;
      for (int rank_size = 1; rank_size <= 8; ++rank_size) {
        const int rank = static_cast<int>(random() % static_cast<uint64_t>(rank_size));
        for (const int64_t count : {0, 1, 3, 17, 64, 1031}) {
          const size_t gap = (16 - static_cast<size_t>(count) * element % 16) % 16;
          Check({dtype, op, rank, rank_size, count, {0, 0, 0}, gap, false}, random);
          Check({dtype, op, rank, rank_size, count, {0, 0, 0}, 0, true}, random);
        }
        const size_t same = random() % 16 / element * element;
        Check({dtype, op, rank, rank_size, 515, {same, same, same}, 16, false}, random);
      }
    }
  }
}

TEST(AnyAddressWillDo) {
  std::mt19937_64 random(7);
  for (const DType dtype : kTypes) {
    for (size_t output = 0; output < 16; ++output) {
      for (const int64_t count : {5, 67}) {
        const Shifts shifts = {output, random() % 16, random() % 16};
        const size_t gap = random() % 16;
        Check({dtype, ReduceOp::kSum, 1, 3, count, shifts, gap, false}, random);
        const size_t own = (SizeOf(dtype) * count) % 16 == 0 ? output : 0;
        Check({dtype, ReduceOp::kMax, 0, 2, count, {output, own, output}, gap, false}, random);
        Check({dtype, ReduceOp::kAvg, 2, 4, count, {output, output, output}, 0, true}, random);
      }
    }
  }
}
