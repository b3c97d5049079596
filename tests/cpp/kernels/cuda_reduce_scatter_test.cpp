// The kernel that reduces the slices of all ranks, on the CPU: the bits of kernels/reduce, in place
// and through the regions.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/reduce/reduce.h"
#include "kernels/cuda_peers.h"

namespace {

using collops::DType;
using collops::ReduceOp;
using collops::cuda::GatedReduceScatter;
using collops::cuda::HostBlock;
using collops::cuda::kInlineBytes;
using collops::cuda::Part;
using collops::cuda::ReduceScatter;
using collops::cuda::ReduceScatterArgs;
using cuda_peers::Buffer;
using cuda_peers::Ranks;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                            DType::kInt8,    DType::kUInt8,   DType::kInt16,   DType::kUInt16,
                            DType::kInt32,   DType::kUInt32,  DType::kInt64,   DType::kUInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum,   ReduceOp::kProd,  ReduceOp::kMax,
                             ReduceOp::kMin,   ReduceOp::kAvg,   ReduceOp::kBitAnd,
                             ReduceOp::kBitOr, ReduceOp::kBitXor};

// A call: rank r gets counts[r] elements, the slices packed in x; or all of x, which has counts[0].
struct Plan {
  DType dtype;
  ReduceOp op;
  bool all_reduce;
  bool in_place;
  std::vector<int64_t> counts;

  int64_t Begin(int rank) const {
    int64_t begin = 0;
    for (int r = 0; r < rank && !all_reduce; ++r) begin += counts[r];
    return begin;
  }
  int64_t XCount() const { return all_reduce ? counts[0] : Begin(static_cast<int>(counts.size())); }
};

// Numbers whose sum depends on the order, and no NaN, whose bits would be open.
void Fill(Buffer& x, DType dtype, std::mt19937_64& random) {
  const auto element = static_cast<size_t>(SizeOf(dtype));
  for (size_t i = 0; i < static_cast<size_t>(x.bytes()); ++i) {
    x.data()[i] = static_cast<char>(random());
    const bool is_top = i % element == element - 1;
    // The upper byte of a real number: an exponent in the middle.
    const bool is_real = dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
                         dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    if (is_top && is_real)
      x.data()[i] = static_cast<char>(random() % 2 * 0x80 + 0x3c + random() % 4);
  }
}

struct Side {
  ReduceScatterArgs args = {};
  Buffer output;

  Side(Ranks& ranks, int rank, const Plan& plan, uint64_t step, Buffer& x, size_t shift)
      : output(plan.counts[rank] * SizeOf(plan.dtype), shift) {
    const int64_t element = SizeOf(plan.dtype);
    args.dtype = plan.dtype;
    args.op = plan.op;
    args.call.group = ranks.GroupOf(rank);
    args.call.digest = step;
    args.call.same_parts = plan.all_reduce ? 1 : 0;
    args.call.x = x.data();
    for (int peer = 0; peer < ranks.size(); ++peer) {
      Part& part = args.call.parts[peer];
      part.send_offset = plan.Begin(peer) * element;
      part.send_bytes = plan.counts[peer] * element;
      part.recv_bytes = plan.counts[rank] * element;
    }
    args.call.output = plan.in_place ? x.data() + plan.Begin(rank) * element : output.data();
  }
};

// Several calls, one after another, each with its own x per rank.
void CheckCalls(Ranks& ranks, const std::vector<Plan>& plans, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Buffer>> xs;
  std::vector<std::vector<char>> expected;
  for (const Plan& plan : plans) {
    const int64_t element = SizeOf(plan.dtype);
    xs.emplace_back();
    for (int rank = 0; rank < ranks.size(); ++rank) {
      xs.back().emplace_back(plan.XCount() * element, random() % 4 == 0 ? random() % 16 : 0);
      Fill(xs.back().back(), plan.dtype, random);
    }
    expected.emplace_back(static_cast<size_t>(plan.XCount() * element) + 1);
    std::vector<const void*> sources;
    for (Buffer& x : xs.back()) sources.push_back(x.data());
    collops::kernels::Reduce(expected.back().data(), sources.data(), ranks.size(), plan.XCount(),
                             plan.dtype, plan.op);
  }
  std::vector<std::string> found(static_cast<size_t>(ranks.size()));
  ranks.Run([&](int rank) {
    std::mt19937_64 own(seed * 31 + static_cast<uint64_t>(rank));
    for (size_t i = 0; i < plans.size() && found[rank].empty(); ++i) {
      const Plan& plan = plans[i];
      const int64_t element = SizeOf(plan.dtype);
      Buffer& x = xs[i][rank];
      Side side(ranks, rank, plan, i + 1, x, own() % 4 == 0 ? own() % 16 : 0);
      cuda_peers::Launch(ranks, side.args, own, ReduceScatter<HostBlock>,
                         GatedReduceScatter<HostBlock>);
      const bool same =
          std::memcmp(side.args.call.output, expected[i].data() + plan.Begin(rank) * element,
                      static_cast<size_t>(plan.counts[rank] * element)) == 0;
      // Its stream may write x at once.
      if (!plan.in_place) std::memset(x.data(), 0x77, static_cast<size_t>(x.bytes()));
      if (same && x.HasPoisonAround() && side.output.HasPoisonAround()) continue;
      found[rank] = collops::Concat("rank ", rank, " of ", ranks.size(), ", ", Name(plan.dtype),
                                    " ", Name(plan.op), ", ", plan.counts[rank], " elements",
                                    plan.all_reduce ? " of all" : "", same ? ": around" : "");
      ranks.Stop();
    }
  });
  for (const std::string& each : found) EXPECT_EQ(each, std::string());
}

std::vector<int64_t> DrawCounts(int size, int64_t element, std::mt19937_64& random) {
  std::vector<int64_t> counts;
  const int64_t inline_count = kInlineBytes / element;
  for (int rank = 0; rank < size; ++rank) {
    const int64_t choices[] = {0, static_cast<int64_t>(random() % 70), inline_count,
                               inline_count + 1, static_cast<int64_t>(random() % 7000)};
    counts.push_back(choices[random() % 5]);
  }
  return counts;
}

}  // namespace

TEST(EveryTypeAndOperationHasTheBitsOfTheCpu) {
  for (const bool is_direct : {true, false}) {
    std::mt19937_64 random(3);
    Ranks ranks(3, is_direct, 2, 4096, 0);
    std::vector<Plan> plans;
    for (const DType dtype : kTypes) {
      for (const ReduceOp op : kOps) {
        if (!collops::kernels::CanReduce(dtype, op)) continue;
        const int64_t above = kInlineBytes / SizeOf(dtype) + 5;
        plans.push_back({dtype, op, false, random() % 2 == 0, {33, above, 7}});
      }
    }
    CheckCalls(ranks, plans, 5);
  }
}

TEST(AnyCountsAndAddressesWillDo) {
  for (const bool is_direct : {true, false}) {
    for (const int size : {1, 2, 5, 8}) {
      std::mt19937_64 random(static_cast<uint64_t>(size));
      Ranks ranks(size, is_direct, 3, 2048, 0);
      std::vector<Plan> plans;
      for (int i = 0; i < 10; ++i) {
        const DType dtype = i % 2 == 0 ? DType::kFloat32 : DType::kBFloat16;
        Plan plan{dtype, ReduceOp::kSum, i % 4 == 0, random() % 2 == 0,
                  DrawCounts(size, SizeOf(dtype), random)};
        if (plan.all_reduce) plan.counts.assign(static_cast<size_t>(size), 1 + i * 200);
        plans.push_back(plan);
      }
      CheckCalls(ranks, plans, 9);
    }
  }
}
