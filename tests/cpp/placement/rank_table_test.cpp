#include "collops/comm/placement/rank_table.h"
#include "collops/comm/registry.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "check.h"
#include "placement/tables.h"

namespace {

using collops::CheckTableFor;
using collops::Concat;
using collops::ParseRankTable;
using collops::RankTable;
using collops::Status;
using tables::With;

RankTable Read(const std::string& text) {
  RankTable table;
  const Status status = ParseRankTable(text, "t.json", &table);
  EXPECT_EQ(status.message(), "");
  return table;
}

std::string ErrorOf(const std::string& text) {
  RankTable table;
  table.version = "untouched";
  const Status status = ParseRankTable(text, "t.json", &table);
  EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
  EXPECT_EQ(table.version, "untouched");
  return status.message();
}

std::string Ranks(const RankTable& table) {
  std::string text;
  for (const RankTable::Rank& rank : table.ranks) {
    text += collops::Concat(table.servers[static_cast<size_t>(rank.server)].id, ":", rank.device_id,
                            ":", rank.device_ip, " ");
  }
  return text;
}

struct Fault {
  const char* text;
  const char* part;
  const char* other;
  const char* message;  // after: rank table "t.json":
};

constexpr Fault kFaults[] = {
    {tables::kTwoServers, "\"status\": \"completed\", ", "", "status is missing"},
    {tables::kTwoServers, "\"completed\"", "\"done\"",
     "status must be \"completed\" or \"initializing\", got \"done\""},
    {tables::kTwoServers, "\"completed\"", "1", "status must be a string, got 1"},
    {tables::kTwoServers, "\"1.0\"", "\"1.3\"",
     "version must be \"1.0\", \"1.1\", \"1.2\" or \"2.0\", or be left out with a group_list, got "
     "\"1.3\""},
    {tables::kTwoServers, "\"version\": \"1.0\", ", "", "group_list is missing"},
    {tables::kTwoServers, "\"server_count\": \"2\"", "\"server_count\": \"3\"",
     "server_count is 3, but server_list has length 2"},
    {tables::kTwoServers, "\"server_count\": \"2\"", "\"server_count\": 2",
     "server_count must be a string of digits, 0 to 9223372036854775807, got 2"},
    {tables::kTwoServers, "\"server_list\"", "\"servers\"", "server_list is missing"},
    {tables::kTwoServers, "\"node-a\"", "\"10.20.0.8\"",
     "server_list[1].server_id: \"10.20.0.8\" given twice, first at server_list[0]"},
    {tables::kTwoServers, "\"node-a\"", "\"node\\u0000a\"",
     "server_list[1].server_id must be 1 to 64 characters without spaces, got \"node\\u0000a\""},
    {tables::kTwoServers, "\"node-a\"", "\"\"",
     "server_list[1].server_id must be 1 to 64 characters without spaces, got \"\""},
    {tables::kTwoServers, "\"host_ip\": \"10.20.0.7\"", "\"host_ip\": \"10.20.0\"",
     "server_list[1].host_ip must be an IPv4 or IPv6 address, got \"10.20.0\""},
    {tables::kTwoServers, "\"rank_id\": \"1\"", "\"rank_id\": \"3\"",
     "server_list[1].device[0].rank_id: \"3\" given twice, first at server_list[0].device[1]"},
    {tables::kTwoServers, "\"rank_id\": \"1\"", "\"rank_id\": \"7\"",
     "the table lists 4 ranks, which must be 0 to 3: rank 1 is missing, "
     "server_list[0].device[0].rank_id is 2"},
    {tables::kTwoServers, "\"rank_id\": \"1\"", "\"rank_id\": \"-1\"",
     "server_list[1].device[0].rank_id must be a string of digits, 0 to 2147483646, got \"-1\""},
    {tables::kTwoServers, "\"rank_id\": \"1\"", "\"rank_id\": \"99999999999999999999\"",
     "server_list[1].device[0].rank_id must be a string of digits, 0 to 2147483646, got "
     "\"99999999999999999999\""},
    {tables::kTwoServers, "\"rank_id\": \"1\"", "\"rank_id\": {}",
     "server_list[1].device[0].rank_id must be a string of digits, 0 to 2147483646, got object"},
    {tables::kTwoServers, "\"rank_id\": \"1\"", "\"rank\": \"1\"",
     "server_list[1].device[0].rank_id is missing"},
    {tables::kTwoServers, "\"device_id\": \"5\", ", "",
     "server_list[1].device[0].device_id is missing"},
    {tables::kTwoServers, "\"device_id\": \"5\"", "\"device_id\": \"6\", \"device_id\": \"5\"",
     "server_list[1].device[0].device_id is given twice in one object, again at line 8, column 26"},
    {tables::kTwoServers, "\"16666\"", "\"0\"",
     "server_list[1].device[0].device_port must be a string of digits, 1 to 65535, got \"0\""},
    {tables::kTwoServers, "\"device_port\": \"16666\"", "\"host_port\": \"65536\"",
     "server_list[1].device[0].host_port must be a string of digits, 1 to 65535, got \"65536\""},
    {tables::kTwoServers, "\"172.30.1.11\"", "17",
     "server_list[1].device[0].device_ip must be a string, got 17"},
    {tables::kTwoServers, "[\n      {\"device_id\": \"5\"", "{\"x\": [ {\"device_id\": \"5\"",
     "malformed JSON at line 8, column 71 (byte 582 of 584): ']' does not close '{' of line 7, "
     "column 5"},
    {tables::kSuperPods, "\"super_pod_id\": \"1\"", "\"super_pod_id\": \"0\"",
     "super_pod_list[1].super_pod_id: \"0\" given twice, first at super_pod_list[0]"},
    {tables::kSuperPods, "[{\"server_id\": \"node-b\"}]", "[{\"server_id\": \"node-a\"}]",
     "super_pod_list[1].server_list[0].server_id: \"node-a\" is in super pod \"0\" already"},
    {tables::kSuperPods, "[{\"server_id\": \"node-b\"}]", "[{\"server_id\": \"node-c\"}]",
     "super_pod_list[1].server_list[0].server_id: \"node-c\" is not in server_list"},
    {tables::kSuperPods,
     ",\n                     {\"super_pod_id\": \"1\", \"server_list\": [{\"server_id\": "
     "\"node-b\"}]}",
     "", "server \"node-b\" of server_list is in no entry of super_pod_list"},
    {tables::kSuperPods,
     "[{\"server_id\": \"node-a\"}]},\n                     {\"super_pod_id\": \"1\", "
     "\"server_list\": [",
     "[{\"server_id\": \"node-a\"}, ",
     "super_device_id \"16\" is given to ranks 0 and 1 of super pod \"0\""},
    {tables::kGroupList, "\"group_count\": \"1\"", "\"group_count\": \"2\"",
     "group_count is 2, but group_list has length 1"},
    {tables::kGroupList, "\"instance_count\": \"2\"", "\"instance_count\": \"1\"",
     "group_list[0].instance_count is 1, but group_list[0].instance_list has length 2"},
    {tables::kGroupList, "\"device_count\": \"3\"", "\"device_count\": \"4\"",
     "group_list[0].device_count is 4, but the instances have 3 devices"},
    {tables::kGroupList, "{\"device_id\": \"0\"}", "{\"device_id\": \"1\"}",
     "device_id \"1\" is given twice on server \"10.20.0.8\""},
    {tables::kRankList, "\"rank_count\": 2", "\"rank_count\": 1",
     "rank_count is 1, but rank_list has length 2"},
    {tables::kRankList, "\"rank_id\": 1", "\"rank_id\": \"1\"",
     "rank_list[0].rank_id must be a number, 0 to 2147483646, got \"1\""},
    {tables::kRankList, "\"rank_id\": 1", "\"rank_id\": 18446744073709551615",
     "rank_list[0].rank_id must be a number, 0 to 2147483646, got 18446744073709551615"},
    {tables::kRankList, "\"net_layer\": 0", "\"net_layer\": 8",
     "rank_list[0].level_list[0].net_layer must be a number, 0 to 7, got 8"},
    {tables::kRankList, "\"net_layer\": 0", "\"net_layer\": 1",
     "rank_list[0].level_list has no entry with net_layer 0"},
    {tables::kRankList, "\"rank_id\": 1", "\"rank_id\": 0",
     "rank_list[1].rank_id: \"0\" given twice, first at rank_list[0]"},
};

}  // namespace

TEST(EveryFormIsReadIntoTheSamePlacement) {
  EXPECT_EQ(Ranks(Read(tables::kTwoServers)),
            "node-a:4:172.30.1.10 node-a:5:172.30.1.11 10.20.0.8:0:172.30.2.10 "
            "10.20.0.8:1:172.30.2.11 ");
  EXPECT_EQ(Ranks(Read(With(tables::kTwoServers, "1.0", "1.1"))), Ranks(Read(tables::kTwoServers)));
  EXPECT_EQ(Ranks(Read(tables::kSuperPods)), "node-a:0:172.30.1.10 node-b:0:172.30.2.10 ");
  EXPECT_EQ(Ranks(Read(tables::kGroupList)), "10.20.0.7:1: 10.20.0.8:0: 10.20.0.8:1:172.30.2.11 ");
  EXPECT_EQ(Ranks(Read(tables::kRankList)), "node-a:2:172.30.1.10 node-b:3:172.30.1.11 ");
}

TEST(ServersKeepTheirAddressesPodsAndNames) {
  const RankTable two = Read(tables::kTwoServers);
  EXPECT_EQ(two.servers[1].host_ip, "10.20.0.7");
  EXPECT_EQ(two.file, "rank table \"t.json\"");
  const RankTable pods = Read(tables::kSuperPods);
  EXPECT_EQ(pods.servers[1].super_pod_id, "1");
  EXPECT_EQ(pods.ranks[1].super_device_id, "16");
  EXPECT_EQ(Read(tables::kGroupList).ranks[0].pod_name, "p1");
}

// Whoever writes it has not got to the rest.
TEST(ATableThatIsNotCompletedMayLackEverythingElse) {
  EXPECT_FALSE(Read(R"({"status": "initializing"})").completed);
  EXPECT_TRUE(Read(tables::kTwoServers).completed);
}

TEST(AnErrorNamesFilePlaceValueAndRule) {
  for (const Fault& fault : kFaults) {
    EXPECT_EQ(ErrorOf(With(fault.text, fault.part, fault.other)),
              std::string("rank table \"t.json\": ") + fault.message);
  }
}

// They are read, and each backend but hccl refuses them.
TEST(RulesThatHcclsLoaderDoesNotKnowAreNoted) {
  const Fault faults[] = {
      {tables::kSuperPods, ", \"super_device_id\": \"16\"", "",
       "server_list[0].device[0].super_device_id is missing"},
      {tables::kSuperPods, "\"super_pod_list\"", "\"pods\"", "super_pod_list is missing"},
      {tables::kRankList, "\"CLOS\"", "\"RING\"",
       "rank_list[1].level_list[0].net_type must be one of \"TOPO_FILE_DESC\", \"CLOS\", got "
       "\"RING\""},
      {tables::kRankList, "\"net_type\": \"CLOS\",", "",
       "rank_list[1].level_list[0].net_type is missing"},
  };
  for (const Fault& fault : faults) {
    const RankTable table = Read(With(fault.text, fault.part, fault.other));
    EXPECT_EQ(table.format_fault.message(), Concat("rank table \"t.json\": ", fault.message));
    EXPECT_EQ(CheckTableFor("shm", table, "").message(), table.format_fault.message());
  }
  EXPECT_EQ(Read(tables::kSuperPods).format_fault.message(), "");
  EXPECT_TRUE(Read(With(tables::kRankList, "\"status\": \"completed\", ", "")).completed);
}

TEST(HcclsRulesAreThoseOfItsLoaderOnTheChip) {
  struct Case {
    const char* soc;
    std::string text;
    const char* part;
    const char* other;
    const char* message;  // null: accepted
  };
  const char* const a2 = "Ascend910B3";
  const char* const a3 = "Ascend910_9391";
  const char* const first = "Ascend910B";
  const char* const two = tables::kTwoServers;
  const char* const pods = tables::kSuperPods;
  const char* const last =
      ",\n      {\"device_id\": \"1\", \"device_ip\": \"172.30.2.11\", "
      "\"rank_id\": \"3\"}";
  const char* const one_pod =
      "]},\n                     {\"super_pod_id\": \"1\", \"server_list\": [";
  const char* const no_address = "\"device_ip\": \"172.30.1.11\", ";
  const Case cases[] = {
      {a2, two, "", "", nullptr},
      {a2, two, last, "", nullptr},
      {a3, two, last, "", nullptr},
      {first, two, last, "", "server \"node-a\" has 2 devices and \"10.20.0.8\" 1: HCCL requires"},
      {a2, two, no_address, "", "rank 1 has no device_ip, which HCCL needs on several servers"},
      {a3, two, no_address, "", "rank 1 has no device_ip, which HCCL needs on several servers"},
      {first, two, no_address, "", nullptr},
      {a2, tables::kOneServer, "\"4\", ", "\"4\", \"device_ip\": \"172.30.1.1\", ", nullptr},
      {a2, tables::kOneServer, "\"4\", ", "\"4\", \"device_ip\": \"172.30.1.1,172.30.1.2\", ",
       "device_ip of rank 1 has 0 addresses and that of rank 0 2: HCCL requires equally many"},
      {a2, two, "\"172.30.1.11\"", "\"172.30.1\"", "rank 1 must be an IPv4 or IPv6 address"},
      {a2, two, "\"172.30.1.11\"", "\"172.30.2.10\"", "\"172.30.2.10\" is given to ranks 1 and 2"},
      {a2, two, "\"172.30.1.11\"", "\"fd00::1\"", "is of another family than the others"},
      {a2, two, "\"device_id\": \"5\"", "\"device_id\": \"4\"",
       "device_id \"4\" of server \"node-a\" is given to ranks 0 and 1"},
      {a2, two, "\"device_id\": \"5\"", "\"device_id\": \"16\"", "must be at most 15 on Atlas A2"},
      {first, two, "\"device_id\": \"5\"", "\"device_id\": \"8\"",
       "must be at most 7 on Ascend910"},
      {a3, pods, "", "", nullptr},
      {a3, pods, ", \"super_device_id\": \"16\"", "", "rank 0 has no super_device_id, which HCCL"},
      {a3, With(pods, ", \"super_device_id\": \"16\"", ""), "\"super_pod_list\"", "\"none\"",
       nullptr},
      {a3, pods, ", \"device_ip\": \"172.30.1.10\"", "", "HCCL needs on several super pods"},
      {a3, With(With(pods, one_pod, ", "), "\"16\"", "\"17\""), ", \"device_ip\": \"172.30.1.10\"",
       "", nullptr},
      {"Ascend950PR", tables::kRankList, "", "", nullptr},
      {"", tables::kRankList, "", "", nullptr},
      {a2, tables::kRankList, "", "", "HCCL takes version \"2.0\" not on Atlas A2, got \"2.0\""},
      {"Ascend950PR", two, "", "", "takes version \"2.0\" and no other on Atlas 350 (950), got"},
  };
  for (const Case& one : cases) {
    const std::string said =
        CheckTableFor("hccl", Read(With(one.text, one.part, one.other)), one.soc).message();
    if (one.message == nullptr) {
      EXPECT_EQ(said, "");
    } else {
      EXPECT_CONTAINS(said, one.message);
    }
  }
  std::string text = With(two, "\"rank_id\": \"2\"", "\"rank_id\": \"x\"");
  text = With(With(text, "\"rank_id\": \"1\"", "\"rank_id\": \"2\""), "\"rank_id\": \"x\"",
              "\"rank_id\": \"1\"");
  EXPECT_CONTAINS(CheckTableFor("hccl", Read(text), a2).message(),
                  "rank 2 of server \"node-a\" does not follow the server's other ranks");
}

// HCCL looks at the file that a link leads to.
TEST(HcclWantsAFileCalledJson) {
  const tables::Folder folder;
  const std::string file = folder.Write("table.txt", tables::kTwoServers);
  EXPECT_EQ(symlink(file.c_str(), folder.At("link.json").c_str()), 0);
  for (const std::string& path : {file, folder.At("link.json"), std::string("a.json.d/t.json")}) {
    RankTable table = Read(tables::kTwoServers);
    table.path = path;
    EXPECT_CONTAINS(CheckTableFor("hccl", table, "Ascend910B1").message(),
                    "HCCL reads only files whose path ends in .json and has no other .json");
    EXPECT_EQ(CheckTableFor("ucx", table, "").message(), "");
  }
}
