// What crosses between hosts in AllGatherV and ReduceScatterV: both ends of every transfer find the
// same one, and every block crosses once per destination host. Plans of ReduceScatterV: the bytes
// that cross, that every slice is used once, and where the order matters in the order of the ranks.
#include "collops/comm/backends/ucx/schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "check.h"
#include "collops/core/status.h"

namespace {

using Lists = std::map<std::pair<int, int>, std::vector<std::vector<int64_t>>>;
using collops::Concat;
using collops::DType;
using collops::ReduceOp;
using collops::ucx::ElementsOf;
using collops::ucx::GatherSchedule;
using collops::ucx::HostMap;
using collops::ucx::kMostHeadBytes;
using collops::ucx::Piece;
using collops::ucx::PlanReduction;
using collops::ucx::ReductionElements;
using collops::ucx::ReductionPlan;
using collops::ucx::ReductionScratchBytes;
using collops::ucx::ReductionStage;
using collops::ucx::SliceSchedule;
using collops::ucx::StageResult;
using collops::ucx::StageSource;

constexpr int64_t kItem = 4;

const std::vector<std::vector<int>> kPlacements = {
    {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 1}, {2, 0, 1, 1, 2, 2, 2}};

// Small enough for a head, whole, cut, and empty, different in every rank.
std::vector<int64_t> Counts(size_t ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (size_t r = 0; r < ranks; ++r) {
    counts.push_back(r == 1 ? 0 : scale * static_cast<int64_t>(2 * r + 1));
  }
  return counts;
}

std::vector<int64_t> Fields(const Piece& t) {
  return {t.from, t.to, t.number, t.owner, t.begin, t.count, t.with_head ? 1 : 0};
}

// All transfers as the senders, and as the receivers, see them.

void Collect(const HostMap& hosts, const GatherSchedule& schedule, Lists* sent, Lists* come) {
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    for (int host = 0; host < hosts.hosts(); ++host) {
      if (host == hosts.HostOf(rank)) continue;
      for (const Piece& t : schedule.SendsTo(rank, host)) {
        EXPECT_EQ(t.from, rank);
        EXPECT_EQ(hosts.HostOf(t.to), host);
        (*sent)[{t.from, t.to}].push_back(Fields(t));
      }
      for (const Piece& t : schedule.ReceivesFrom(rank, host)) {
        EXPECT_EQ(t.to, rank);
        EXPECT_EQ(hosts.HostOf(t.from), host);
        (*come)[{t.from, t.to}].push_back(Fields(t));
      }
    }
  }
}

// host_of[r]: the host of rank r.
HostMap Hosts(const std::vector<int>& host_of) {
  collops::control::Group group;
  group.host = host_of[0];
  for (const int host : host_of) {
    group.peers.emplace_back();
    group.peers.back().host = host;
  }
  return HostMap(group, 0);
}

std::vector<int> Blocks(int hosts, int ranks) {
  std::vector<int> host_of;
  for (int h = 0; h < hosts; ++h) host_of.insert(host_of.end(), static_cast<size_t>(ranks), h);
  return host_of;
}

std::vector<int> RoundRobin(int hosts, int ranks) {
  std::vector<int> host_of;
  for (int i = 0; i < hosts * ranks; ++i) host_of.push_back(i % hosts);
  return host_of;
}

// The bytes of a call with slices of one element, in elements.
int64_t Crossing(const std::vector<int>& host_of, DType dtype, ReduceOp op = ReduceOp::kSum) {
  const HostMap hosts = Hosts(host_of);
  const ReductionElements elements = ElementsOf(dtype, op);
  int64_t bytes = 0;
  for (int owner = 0; owner < hosts.ranks(); ++owner) {
    bytes += PlanReduction(hosts, owner, elements).element_bytes;
  }
  return bytes / elements.bytes;
}

// The slices that a stage's result holds, in the order in which they were reduced.
std::vector<int> SlicesOf(const ReductionPlan& plan, const ReductionStage& stage) {
  std::vector<int> slices;
  for (const StageSource& source : stage.sources) {
    if (source.is_slice) {
      slices.push_back(source.index);
      continue;
    }
    const auto more = SlicesOf(plan, plan.stages[static_cast<size_t>(source.index)]);
    slices.insert(slices.end(), more.begin(), more.end());
  }
  return slices;
}

// Ok, or what is wrong with the plan.
std::string Fault(const HostMap& hosts, int owner, const ReductionPlan& plan, bool any_order) {
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const ReductionStage& stage = plan.stages[i];
    const bool last = i + 1 == plan.stages.size();
    if (last != (stage.consumer < 0)) return Concat("stage ", i, " has no consumer");
    if (last && stage.worker != owner) return "the last stage is not the owner's";
    for (const StageSource& source : stage.sources) {
      const bool local = hosts.HostOf(source.index) == hosts.HostOf(stage.worker);
      if (source.is_slice && !local) return Concat("stage ", i, " uses a slice of another host");
      if (source.is_slice) continue;
      if (source.index >= static_cast<int>(i)) return Concat("stage ", i, " comes too early");
      const ReductionStage& before = plan.stages[static_cast<size_t>(source.index)];
      if (before.consumer != static_cast<int>(i)) return Concat("stage ", i, " takes another's");
      if (before.worker == stage.worker) return Concat("stage ", i, " sends to itself");
    }
    if (stage.result == StageResult::kSlice &&
        (stage.sources.size() != 1 || stage.sources[0].index != stage.worker)) {
      return Concat("stage ", i, " sends a slice that is not its own");
    }
  }
  std::vector<int> slices = SlicesOf(plan, plan.stages.back());
  if (any_order) std::sort(slices.begin(), slices.end());
  for (int r = 0; r < hosts.ranks(); ++r) {
    if (static_cast<size_t>(r) >= slices.size() || slices[static_cast<size_t>(r)] != r) {
      return Concat("slice ", r, " is not in its place");
    }
  }
  return slices.size() == static_cast<size_t>(hosts.ranks()) ? "" : "a slice is used twice";
}

}  // namespace

TEST(BothEndsOfAGatherFindTheSameTransfers) {
  for (const auto& host_of : kPlacements) {
    const HostMap hosts(host_of, 0);
    for (const int64_t scale : {1, 300, 5000, 70000}) {
      const std::vector<int64_t> counts = Counts(host_of.size(), scale);
      Lists sent, come;
      Collect(hosts, GatherSchedule(hosts, counts.data(), kItem), &sent, &come);
      EXPECT_TRUE(sent == come);
      EXPECT_FALSE(sent.empty());
    }
  }
}

TEST(ABlockCrossesOncePerHost) {
  for (const auto& host_of : kPlacements) {
    const HostMap hosts(host_of, 0);
    for (const int64_t scale : {1, 300, 5000, 70000}) {
      const std::vector<int64_t> counts = Counts(host_of.size(), scale);
      const GatherSchedule schedule(hosts, counts.data(), kItem);
      for (int owner = 0; owner < hosts.ranks(); ++owner) {
        for (int host = 0; host < hosts.hosts(); ++host) {
          int64_t next = 0;
          const auto ranks = static_cast<int>(hosts.RanksOf(host).size());
          for (int i = 0; i < ranks; ++i) {
            EXPECT_EQ(schedule.PieceBegin(owner, host, i), next);
            next += schedule.PieceCount(owner, host, i);
          }
          EXPECT_EQ(next, counts[static_cast<size_t>(owner)]);
        }
      }
    }
  }
}

TEST(OnlyTheOwnSmallPieceTravelsWithTheHead) {
  const HostMap hosts({0, 0, 1, 1}, 0);
  for (const int64_t count : {kMostHeadBytes / kItem, kMostHeadBytes / kItem + 1}) {
    const std::vector<int64_t> counts(4, count);
    const GatherSchedule schedule(hosts, counts.data(), kItem);
    // Block 0 goes whole to the first rank of the other host, block 1 to the second.
    EXPECT_EQ(schedule.OwnPiece(0, 2).with_head, count * kItem <= kMostHeadBytes);
    EXPECT_EQ(schedule.OwnPiece(0, 3).count, 0);
    EXPECT_FALSE(schedule.OwnPiece(0, 3).with_head);
    EXPECT_EQ(schedule.SendsTo(0, 1).size(), 1);
  }
}

TEST(ASliceGoesFromEveryRankToItsOwner) {
  const HostMap hosts({0, 0, 0, 1}, 0);
  const std::vector<int64_t> counts = {10, 2000, 0, 3};
  const SliceSchedule schedule(hosts, counts.data(), kItem);
  EXPECT_EQ(schedule.OwnPiece(3, 0).count, 10);
  EXPECT_EQ(schedule.OwnPiece(0, 3).count, 3);
  EXPECT_TRUE(schedule.OwnPiece(3, 0).with_head);
  EXPECT_FALSE(schedule.OwnPiece(3, 1).with_head);  // too large
  EXPECT_FALSE(schedule.OwnPiece(3, 2).with_head);  // empty
  EXPECT_TRUE(schedule.OwnPiece(0, 3).with_head);
  EXPECT_FALSE(schedule.OwnPiece(1, 3).with_head);  // rank 0 speaks to rank 3
}

TEST(ScratchMemoryHoldsTheHostAndARingPerOtherRank) {
  const HostMap hosts({0, 0, 1, 1, 1}, 0);
  const std::vector<int64_t> counts(5, 1 << 20);  // 4 MiB: a ring has 1 MiB
  const SliceSchedule schedule(hosts, counts.data(), kItem);
  EXPECT_EQ(schedule.ScratchBytes(0), (2 * 4 + 3) << 20);
  EXPECT_EQ(schedule.ScratchBytes(4), (3 * 4 + 2) << 20);
  const HostMap apart({0, 1, 2}, 0);
  EXPECT_EQ(SliceSchedule(apart, counts.data(), kItem).ScratchBytes(1), 2 << 20);
}

TEST(BytesThatCross) {
  EXPECT_EQ(Crossing(Blocks(2, 1), DType::kFloat32), 2);
  EXPECT_EQ(Crossing(Blocks(2, 1), DType::kFloat16), 2);
  EXPECT_EQ(Crossing(Blocks(2, 2), DType::kFloat32), 6);
  EXPECT_EQ(Crossing(Blocks(2, 2), DType::kBFloat16), 8);
  EXPECT_EQ(Crossing(RoundRobin(2, 2), DType::kFloat32), 8);
  EXPECT_EQ(Crossing(Blocks(2, 4), DType::kFloat32), 12);
  EXPECT_EQ(Crossing(Blocks(2, 4), DType::kBFloat16), 20);
  EXPECT_EQ(Crossing(Blocks(2, 8), DType::kFloat32), 24);
  EXPECT_EQ(Crossing(Blocks(2, 8), DType::kFloat16), 40);
  EXPECT_EQ(Crossing(Blocks(3, 2), DType::kFloat32), 16);
  EXPECT_EQ(Crossing(Blocks(3, 2), DType::kFloat16), 24);
  EXPECT_EQ(Crossing(Blocks(2, 2), DType::kFloat64, ReduceOp::kAvg), 6);
  EXPECT_EQ(Crossing(Blocks(4, 8), DType::kFloat32), 120);
  EXPECT_EQ(Crossing(Blocks(4, 8), DType::kBFloat16), 216);
}

TEST(BytesThatCrossInAnyOrder) {
  EXPECT_EQ(Crossing(Blocks(2, 2), DType::kInt32), 4);
  EXPECT_EQ(Crossing(RoundRobin(2, 2), DType::kInt8), 4);
  EXPECT_EQ(Crossing(RoundRobin(2, 2), DType::kInt32, ReduceOp::kAvg), 4);
  EXPECT_EQ(Crossing(Blocks(2, 4), DType::kFloat16, ReduceOp::kMax), 8);
  EXPECT_EQ(Crossing(Blocks(3, 2), DType::kFloat32, ReduceOp::kMin), 12);
  EXPECT_EQ(Crossing(Blocks(4, 8), DType::kInt64, ReduceOp::kProd), 96);
}

TEST(EverySliceIsUsedOnce) {
  const std::vector<std::vector<int>> placements = {
      Blocks(2, 1),     Blocks(2, 3),       Blocks(5, 2),          RoundRobin(2, 3),
      RoundRobin(3, 2), {0, 1, 1, 1},       {0, 0, 0, 1},          {0, 1, 1, 0},
      {0, 0, 1, 1, 0},  {0, 1, 2, 2, 1, 0}, {0, 0, 1, 2, 2, 2, 1}, RoundRobin(2, 20)};
  for (const std::vector<int>& placement : placements) {
    const HostMap hosts = Hosts(placement);
    for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
        const ReductionElements elements = ElementsOf(dtype, op);
        for (int owner = 0; owner < hosts.ranks(); ++owner) {
          const ReductionPlan plan = PlanReduction(hosts, owner, elements);
          EXPECT_EQ(Fault(hosts, owner, plan, elements.any_order), "");
        }
      }
    }
  }
}

// What a rank sends to one other rank has one number each.
TEST(NumbersTellResultsApart) {
  const HostMap hosts = Hosts(RoundRobin(2, 4));
  ReductionElements elements = ElementsOf(DType::kFloat32, ReduceOp::kSum);
  // Whole slices would cost more than any chain.
  elements.sum_bytes = 1;
  for (int owner = 0; owner < hosts.ranks(); ++owner) {
    const ReductionPlan plan = PlanReduction(hosts, owner, elements);
    EXPECT_TRUE(!plan.whole);
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      for (size_t j = i + 1; j < plan.stages.size(); ++j) {
        EXPECT_TRUE(plan.stages[i].number != plan.stages[j].number);
      }
    }
  }
}

// A ring is as long as the stream that it is for, up to its limit.
TEST(ScratchMemoryGrowsWithTheSlices) {
  const HostMap hosts = Hosts(Blocks(2, 4));
  const ReductionElements elements = ElementsOf(DType::kBFloat16, ReduceOp::kSum);
  std::vector<ReductionPlan> plans;
  for (int owner = 0; owner < hosts.ranks(); ++owner) {
    plans.push_back(PlanReduction(hosts, owner, elements));
  }
  constexpr int64_t kSums = 256 << 10;  // of a chunk, which every rank has
  const auto rings = [&](const std::vector<int64_t>& counts) {
    return ReductionScratchBytes(plans, counts.data(), elements, 0) - kSums;
  };
  const int64_t all_long = rings(std::vector<int64_t>(8, 1 << 22));
  EXPECT_TRUE(all_long > 0);
  EXPECT_EQ(all_long % (1 << 20), 0);
  const int64_t number = all_long >> 20;
  EXPECT_EQ(rings(std::vector<int64_t>(8, 100)), number * 448);  // 400 bytes, in lines of 64
  EXPECT_EQ(rings(std::vector<int64_t>(8, 0)), 0);
  std::vector<int64_t> uneven(8, 0);
  uneven[0] = 1 << 22;
  EXPECT_TRUE(rings(uneven) < all_long);
}

// The plans of the last call serve the next one of the same counts and elements only.
TEST(ACallOfTheSameCountsIsNotPlannedAgain) {
  const HostMap hosts = Hosts(Blocks(2, 4));
  const ReductionElements sums = ElementsOf(DType::kFloat32, ReduceOp::kSum);
  const ReductionElements most = ElementsOf(DType::kFloat32, ReduceOp::kMax);
  const std::vector<int64_t> long_ones(8, 1 << 16), short_ones(8, 1);
  collops::ucx::KnownPlans known;
  const auto first = known.For(hosts, long_ones.data(), sums);
  EXPECT_EQ(first->size(), 8U);
  EXPECT_TRUE(known.For(hosts, long_ones.data(), sums) == first);
  const auto second = known.For(hosts, long_ones.data(), most);
  EXPECT_TRUE(second->front().element_bytes < first->front().element_bytes);
  EXPECT_EQ(known.For(hosts, short_ones.data(), most)->size(), 0U);
}
