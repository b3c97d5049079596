// Where the ranks of a job meet that is on several hosts, and what the launchers say of that.
#include "collops/comm/placement/placement.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "collops/comm/placement/rank_table.h"
#include "placement/launchers.h"

namespace {

using namespace collops;
using launchers::SetVariables;
using launchers::Variables;
using launchers::With;

Variables Torchrun(int rank, int size, int here, const std::string& address = "10.0.0.7") {
  return {{"TORCHELASTIC_RUN_ID", "x"},
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_WORLD_SIZE", std::to_string(here)},
          {"MASTER_ADDR", address}};
}

using Table = std::shared_ptr<const RankTable>;

std::string TextOf(const std::vector<std::string>& servers) {
  std::string list;
  for (size_t i = 0; i < servers.size(); ++i) {
    list += Concat(i == 0 ? "" : ",", R"({"server_id":")", servers[i],
                   R"(","device":[{"device_id":"0","rank_id":")", i, R"("}]})");
  }
  return Concat(R"({"version":"1.0","status":"completed","server_list":[)", list, "]}");
}

Table TableOf(const std::vector<std::string>& servers) {
  RankTable table;
  EXPECT_EQ(ParseRankTable(TextOf(servers), "own.json", &table).message(), "");
  return std::make_shared<const RankTable>(std::move(table));
}

JobPlace PlaceOf(const Variables& variables, const Table& table, int rank) {
  SetVariables(variables);
  JobPlace place;
  EXPECT_EQ(FindJobPlace(table, rank, &place).message(), "");
  return place;
}

void ExpectPlace(const JobPlace& place, const std::string& address, bool is_first) {
  EXPECT_EQ(place.address, address);
  if (!address.empty()) EXPECT_EQ(place.is_first, is_first);
}

}  // namespace

TEST(TheGroupsTableSaysWhere) {
  const Table two = TableOf({"10.0.0.1", "10.0.0.2"});
  ExpectPlace(PlaceOf({}, two, 0), "10.0.0.1", true);
  ExpectPlace(PlaceOf({}, two, 1), "10.0.0.1", false);
  EXPECT_EQ(PlaceOf({}, two, 1).table_digest, two->digest);
  // The launcher numbers the ranks in another way.
  ExpectPlace(PlaceOf(Torchrun(1, 2, 1), two, 0), "10.0.0.1", true);
  ExpectPlace(PlaceOf(Torchrun(0, 4, 2), TableOf({"10.0.0.1"}), 0), "", true);
}

// A group that is a part of the job meets where the job does.
TEST(TheJobsTableSaysWhere) {
  char path[] = "/tmp/job_place_test_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_TRUE(file >= 0);
  close(file);
  std::ofstream(path) << TextOf({"node-a", "node-b", "node-c"});
  const Variables job = {
      {"RANK_TABLE_FILE", path}, {"RANK_ID", "0"}, {"COLLOPS_SERVER_ID", "node-a"}};
  const Variables third = {
      {"RANK_TABLE_FILE", path}, {"RANK_ID", "2"}, {"COLLOPS_SERVER_ID", "node-c"}};
  const Table part = TableOf({"node-c", "node-a"});
  ExpectPlace(PlaceOf(job, part, 1), "node-a", true);
  ExpectPlace(PlaceOf(third, part, 0), "node-a", false);
  ExpectPlace(PlaceOf(job, nullptr, 1), "node-a", true);
  ExpectPlace(PlaceOf(third, nullptr, 0), "node-a", false);
  EXPECT_EQ(PlaceOf(job, part, 1).table_digest, PlaceOf(third, nullptr, 0).table_digest);
  EXPECT_TRUE(PlaceOf(job, part, 1).table_digest != part->digest);
  std::ofstream(path) << R"({"version":"1.0","status":"initializing"})";
  JobPlace place;
  SetVariables(job);
  EXPECT_CONTAINS(FindJobPlace(part, 1, &place).message(), "its status is \"initializing\"");
  unlink(path);
}

// Any of its hosts may have rank 0 by now; the process that joins, and its host, need not be in it.
TEST(AllHostsOfTheJobsTableAreLookedAtToJoin) {
  char path[] = "/tmp/job_place_test_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_TRUE(file >= 0);
  close(file);
  const auto places = [&](const Variables& variables) {
    SetVariables(variables);
    std::vector<std::string> addresses;
    EXPECT_EQ(FindPlacesToJoin(&addresses).message(), "");
    std::string list;
    for (const std::string& address : addresses) list += Concat(address, " ");
    return list;
  };
  std::ofstream(path) << TextOf({"node-a", "node-b"});
  const Variables job = {{"RANK_TABLE_FILE", path}};
  EXPECT_EQ(places(job), "node-a node-b ");
  EXPECT_EQ(places(With(job, "MASTER_ADDR", "node-b")), "node-b node-a ");
  EXPECT_EQ(places(With(job, "MASTER_ADDR", "10.0.0.7")), "10.0.0.7 node-a node-b ");
  EXPECT_EQ(places(With(job, "MASTER_ADDR", "127.0.0.1")), "node-a node-b ");
  std::ofstream(path) << TextOf({"127.0.0.1", "127.0.0.2"});
  EXPECT_EQ(places(With(job, "MASTER_ADDR", "127.0.0.1")), "127.0.0.1 127.0.0.2 ");
  std::ofstream(path) << TextOf({"node-a"});
  EXPECT_EQ(places(With(job, "MASTER_ADDR", "10.0.0.7")), "");
  EXPECT_EQ(places({{"MASTER_ADDR", "10.0.0.7"}}), "10.0.0.7 ");
  EXPECT_EQ(places(Torchrun(3, 4, 2)), "10.0.0.7 ");
  EXPECT_EQ(places({}), "");
  unlink(path);
}

TEST(WithoutATableTheLauncherSaysIt) {
  ExpectPlace(PlaceOf(Torchrun(0, 4, 2), nullptr, 0), "10.0.0.7", true);
  ExpectPlace(PlaceOf(Torchrun(3, 4, 2), nullptr, 0), "10.0.0.7", false);
  ExpectPlace(PlaceOf(Torchrun(3, 4, 4), nullptr, 3), "", false);
  const Variables openmpi = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "node-a"}};
  ExpectPlace(PlaceOf(With(openmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), nullptr, 0), "node-a",
              true);
  ExpectPlace(PlaceOf(With(openmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"), nullptr, 0), "", true);
}

TEST(PlainVariablesSayIt) {
  const Variables plain = {{"COLLOPS_RANK", "1"}, {"COLLOPS_RANK_SIZE", "2"}};
  ExpectPlace(PlaceOf(plain, nullptr, 1), "", false);
  ExpectPlace(PlaceOf(With(plain, "MASTER_ADDR", "10.0.0.7"), nullptr, 1), "10.0.0.7", false);
  // Many scripts set MASTER_ADDR for torch, on one host.
  for (const char* address : {"localhost", "127.0.0.1", "127.0.1.1", "::1"}) {
    ExpectPlace(PlaceOf(With(plain, "MASTER_ADDR", address), nullptr, 1), "", false);
  }
  ExpectPlace(PlaceOf({{"MASTER_ADDR", "10.0.0.7"}}, nullptr, 0), "10.0.0.7", true);
}

TEST(LaunchersSayWhetherThereAreSeveralHosts) {
  const auto spread = [](const Variables& variables) {
    SetVariables(variables);
    return static_cast<int>(DetectLauncher().spread);
  };
  const int one = static_cast<int>(Spread::kOneHost);
  const int several = static_cast<int>(Spread::kHosts);
  const int unknown = static_cast<int>(Spread::kUnknown);
  EXPECT_EQ(spread({}), unknown);
  EXPECT_EQ(spread(Torchrun(0, 4, 4)), one);
  EXPECT_EQ(spread(Torchrun(0, 4, 3)), several);
  const Variables mpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}};
  EXPECT_EQ(spread(mpich), unknown);
  EXPECT_EQ(spread(With(mpich, "MPI_LOCALNRANKS", "4")), one);
  EXPECT_EQ(spread(With(mpich, "MPI_LOCALNRANKS", "1")), several);
  const Variables slurm = {
      {"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
  EXPECT_EQ(spread(slurm), unknown);
  EXPECT_EQ(spread(With(slurm, "SLURM_NNODES", "1")), one);
  EXPECT_EQ(spread(With(slurm, "SLURM_NNODES", "2")), several);
  // A step that uses a part of the job's hosts.
  EXPECT_EQ(spread(With(With(slurm, "SLURM_NNODES", "2"), "SLURM_STEP_NUM_NODES", "1")), one);
  const Variables run = {
      {"COLLOPS_RANK", "0"}, {"COLLOPS_RANK_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(spread(With(run, "WORLD_SIZE", "4")), several);
  // run_ranks inside of a rank of torchrun: LOCAL_WORLD_SIZE is that of torchrun.
  EXPECT_EQ(spread(With(run, "WORLD_SIZE", "8")), unknown);
}

TEST(RanksThatHaveAgreedOnAPlaceMeetThere) {
  SetVariables(Torchrun(3, 4, 2));
  const auto read = [](const std::string& meet_at, int rank) {
    JobPlace place;
    EXPECT_EQ(ReadJobPlace(meet_at, rank, &place).message(), "");
    return Concat(place.address, " ", place.port, place.is_first ? " first" : "");
  };
  EXPECT_EQ(read("10.0.0.1:29577", 0), "10.0.0.1 29577 first");
  EXPECT_EQ(read("10.0.0.1:29577", 3), "10.0.0.1 29577");
  EXPECT_EQ(read("[fe80::1%2]:1", 1), "fe80::1%2 1");
  EXPECT_EQ(read("", 0), " 0");
  for (const char* const wrong : {"10.0.0.1", "10.0.0.1:65536", "10.0.0.1:1x", ":1", "fe80::1"}) {
    JobPlace place;
    EXPECT_EQ(ReadJobPlace(wrong, 0, &place).message(),
              Concat("meet_at must be an address of rank 0's host and a port, as ",
                     "\"10.0.0.1:29577\", got \"", wrong, "\""));
  }
}
