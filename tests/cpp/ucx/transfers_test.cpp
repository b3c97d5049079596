// What crosses between hosts in AllGatherV and ReduceScatterV: both ends of every transfer find the
// same one, and every block crosses once per destination host.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "check.h"
#include "collops/comm/backends/ucx/schedule.h"

namespace {

using collops::ucx::GatherSchedule;
using collops::ucx::HostMap;
using collops::ucx::kMostHeadBytes;
using collops::ucx::SliceSchedule;
using collops::ucx::Piece;

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
using Lists = std::map<std::pair<int, int>, std::vector<std::vector<int64_t>>>;

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
  EXPECT_EQ(schedule.Of(3, 0).count, 10);
  EXPECT_EQ(schedule.Of(0, 3).count, 3);
  EXPECT_TRUE(schedule.Of(3, 0).with_head);
  EXPECT_FALSE(schedule.Of(3, 1).with_head);  // too large
  EXPECT_FALSE(schedule.Of(3, 2).with_head);  // empty
  EXPECT_TRUE(schedule.Of(0, 3).with_head);
  EXPECT_FALSE(schedule.Of(1, 3).with_head);  // rank 0 speaks to rank 3
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
