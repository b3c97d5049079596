// What a message says of ranks that have not come.
#include "collops/comm/control/first_contact/missing_ranks.h"

#include "check.h"

namespace {

using collops::RankSet;
using collops::control::DescribeMissing;
using collops::control::PortHearsay;

RankSet SetOf(int rank_size, const std::vector<int>& ranks) {
  RankSet set = RankSet::None(rank_size);
  for (const int rank : ranks) set.Add(rank);
  return set;
}

}  // namespace

TEST(OfTheMissingRanksItSaysWhereTheyAreAndWhoWasThere) {
  const std::vector<std::string> hosts = {"10.0.0.1", "10.0.0.1", "node2, 10.0.0.2", "10.0.0.3",
                                          "node2, 10.0.0.2"};
  PortHearsay hearsay;
  EXPECT_EQ(DescribeMissing(SetOf(5, {0, 1}), hosts, hearsay),
            "; the rank table places ranks 2, 4 on node2, 10.0.0.2, rank 3 on 10.0.0.3");
  hearsay.turned_away = {"10.0.0.3, which is not a rank of collops",
                         "10.0.0.2, which says it is rank 2 and has another key"};
  hearsay.asked = {{1, "10.0.0.1"}, {3, "node3, 10.0.0.3"}, {9, "10.0.0.9"}};
  EXPECT_EQ(DescribeMissing(SetOf(5, {0, 1, 2, 4}), {}, hearsay),
            "; rank 3 (on node3, 10.0.0.3) asked at the job's port, and did not come; turned away: "
            "10.0.0.3, which is not a rank of collops | 10.0.0.2, which says it is rank 2 and has "
            "another key");
  EXPECT_EQ(DescribeMissing(RankSet::All(5), hosts, {}), "");
}

TEST(AMessageOfMissingRanksIsBounded) {
  std::vector<std::string> hosts;
  PortHearsay hearsay;
  for (int rank = 0; rank < 4096; ++rank) {
    hosts.push_back(std::string(60, 'h') + std::to_string(rank / 100));
    hearsay.asked[rank] = std::string(30, 'w');
  }
  hearsay.turned_away = {4, std::string(256, 's')};
  EXPECT_CONTAINS(DescribeMissing(RankSet::None(4096), hosts, {}),
                  "ranks 0, 1, 2, 3 and 96 others on hhhh");
  EXPECT_CONTAINS(DescribeMissing(RankSet::None(4096), hosts, {}), " and 37 others");
  const std::string all = DescribeMissing(RankSet::None(4096), hosts, hearsay);
  EXPECT_EQ(all.size(), collops::control::kMostKnownBytes);
  EXPECT_CONTAINS(all, "and 4092 others asked at the job's port, and did not come; turned away: s");
}
