#include "collops/comm/placement/placement.h"

#include <cstdlib>
#include <string>

#include "check.h"
#include "placement/launchers.h"
#include "placement/tables.h"

namespace {

using collops::FindPlacement;
using collops::Placement;
using collops::PlacementWanted;
using collops::Status;
using launchers::Variables;
using launchers::With;

// As the launcher of a rank table would have made the environment on node-a.
void SetVariables(const Variables& variables) {
  Variables all = {{"COLLOPS_SERVER_ID", "node-a"}};
  for (const auto& [name, value] : variables) all[name] = value;
  launchers::SetVariables(all);
}

Placement Found(const Variables& variables, const PlacementWanted& wanted) {
  SetVariables(variables);
  Placement placement;
  EXPECT_EQ(FindPlacement(wanted, &placement).message(), "");
  return placement;
}

std::string ErrorOf(const Variables& variables, const PlacementWanted& wanted) {
  SetVariables(variables);
  Placement placement;
  const Status status = FindPlacement(wanted, &placement);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  return status.message();
}

}  // namespace

TEST(WithoutATableTheCallerAndTheLauncherSayTheRank) {
  EXPECT_EQ(Found({}, {1, 2}).rank, 1);
  EXPECT_EQ(Found({}, {}).rank, -1);
  const Placement launched = Found({{"COLLOPS_RANK", "3"}, {"COLLOPS_RANK_SIZE", "4"}}, {});
  EXPECT_EQ(launched.rank, 3);
  EXPECT_EQ(launched.rank_size, 4);
  EXPECT_EQ(launched.source, "COLLOPS_RANK");
  EXPECT_TRUE(launched.table == nullptr);
}

TEST(ATableSaysTheRankByRankIdOrDevice) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", tables::kTwoServers);
  const Variables file = {{"RANK_TABLE_FILE", path}};
  const Placement by_id = Found(With(With(file, "RANK_ID", "1"), "RANK_SIZE", "4"), {});
  EXPECT_EQ(by_id.rank, 1);
  EXPECT_EQ(by_id.rank_size, 4);
  EXPECT_EQ(by_id.source, "the rank table's environment");
  EXPECT_EQ(by_id.table->servers.size(), 2);
  const Placement by_device = Found(With(file, "DEVICE_ID", "5"), {});
  EXPECT_EQ(by_device.rank, 1);
  EXPECT_EQ(by_device.rank_size, 4);
  EXPECT_EQ(by_device.source, "rank table \"" + path + "\"");
  // The same of a struct's table, whatever the environment's is.
  EXPECT_EQ(Found({{"DEVICE_ID", "4"}, {"RANK_TABLE_FILE", "none"}}, {-1, 4, path}).rank, 0);
  // The only rank of its host needs nothing.
  EXPECT_EQ(Found({{"RANK_TABLE_FILE", folder.Write("pods.json", tables::kSuperPods)}}, {}).rank,
            0);
}

TEST(WhatContradictsTheTableIsAnError) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", tables::kTwoServers);
  EXPECT_EQ(ErrorOf({}, {0, 3, path}),
            "rankSize is 3, but rank table \"" + path + "\" lists 4 ranks: pass 4");
  EXPECT_EQ(ErrorOf({{"RANK_TABLE_FILE", path}}, {0, 5}),
            "rankSize is 5, but rank table \"" + path + "\" lists 4 ranks: pass 4");
  EXPECT_EQ(ErrorOf({}, {2, 4, path}),
            "rank 2 is this process, but rank table \"" + path +
                "\" places it on server \"10.20.0.8\", and this host is \"node-a\"");
  EXPECT_CONTAINS(ErrorOf({{"RANK_ID", "4"}, {"RANK_TABLE_FILE", path}}, {-1, 4}),
                  "rank is 4, but rank table");
  EXPECT_CONTAINS(ErrorOf({}, {-1, 4, path}),
                  "ranks 0, 1 are on this host, server \"node-a\": set RANK_ID, or DEVICE_ID");
  EXPECT_CONTAINS(ErrorOf({{"DEVICE_ID", "7"}}, {-1, 4, path}),
                  "DEVICE_ID is \"7\", but no rank of this host");
  EXPECT_CONTAINS(ErrorOf({{"COLLOPS_SERVER_ID", "node-x"}}, {0, 4, path}),
                  "COLLOPS_SERVER_ID is \"node-x\"");
  EXPECT_CONTAINS(ErrorOf({{"RANK_TABLE_FILE", path + ".none"}}, {0, 4}), "No such file");
}

// A host whose addresses the table does not have still knows its ranks.
TEST(AHostThatIsNotInTheTableIsToldItsRank) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", tables::kTwoServers);
  SetVariables({});
  unsetenv("COLLOPS_SERVER_ID");
  Placement placement;
  EXPECT_EQ(FindPlacement({2, 4, path}, &placement).message(), "");
  EXPECT_EQ(placement.rank, 2);
}

TEST(AGroupOfFewerRanksAndThreadsAreIndependentOfTheEnvironmentsTable) {
  const tables::Folder folder;
  const Variables file = {{"RANK_TABLE_FILE", folder.Write("t.json", tables::kTwoServers)}};
  EXPECT_TRUE(Found(file, {1, 2}).table == nullptr);
  EXPECT_TRUE(Found(file, {7, 9, "", true}).table == nullptr);
}

TEST(ATableThatIsNotCompleteIsCheckedLater) {
  const tables::Folder folder;
  const std::string path = folder.Write("t.json", R"({"status": "initializing"})");
  const Placement placement = Found({}, {5, 6, path});
  EXPECT_FALSE(placement.table->completed);
  EXPECT_EQ(placement.rank, 5);
  EXPECT_EQ(Found({{"RANK_TABLE_FILE", path}}, {}).rank, -1);
}
