#include "collops/comm/placement/placement.h"

#include <string>

#include "check.h"

namespace {

using collops::FindServer;
using collops::LocalHost;
using collops::RankTable;
using collops::Status;

RankTable Table(std::vector<RankTable::Server> servers) {
  RankTable table;
  table.file = "rank table \"t.json\"";
  table.servers = std::move(servers);
  return table;
}

const RankTable& Servers() {
  static const RankTable table = Table({{"10.0.0.1", "", ""},
                                        {"node-b", "10.0.0.2", ""},
                                        {"node-c.example", "", ""},
                                        {"fd00::4", "", ""},
                                        {"10.0.0.9", "10.0.0.5", ""}});
  return table;
}

int Found(const LocalHost& host) {
  int server = -1;
  EXPECT_EQ(FindServer(Servers(), host, &server).message(), "");
  return server;
}

std::string ErrorOf(const RankTable& table, const LocalHost& host) {
  int server = -1;
  const Status status = FindServer(table, host, &server);
  EXPECT_EQ(server, -1);
  return status.message();
}

}  // namespace

TEST(AHostFindsItselfByAddressThenByName) {
  EXPECT_EQ(Found({"", {"192.168.0.1", "10.0.0.1", "127.0.0.1"}, "x"}), 0);
  EXPECT_EQ(Found({"", {"10.0.0.2"}, "node-c"}), 1);
  EXPECT_EQ(Found({"", {"192.168.0.1"}, "node-c.example"}), 2);
  EXPECT_EQ(Found({"", {"192.168.0.1"}, "node-c"}), 2);
  EXPECT_EQ(Found({"", {"192.168.0.1"}, "node-b.example"}), 1);
  EXPECT_EQ(Found({"", {"fd00:0:0::4"}, "x"}), 3);
  EXPECT_EQ(Found({"", {"10.0.0.9"}, "x"}), 4);
}

// Of a Kubernetes operator's table: server_id is the pod's UID, host_ip its node's address.
TEST(APodFindsItselfByItsOwnAddressOrItsRank) {
  RankTable pods = Table({{"uid-0", "10.0.0.1", "", "10.244.0.4"},
                          {"uid-1", "10.0.0.1", "", "10.244.0.5"},
                          {"uid-2", "10.0.0.2", "", "10.0.0.2"},
                          {"uid-3", "10.0.0.2", "", "10.0.0.2"}});
  for (int server = 0; server < 4; ++server) pods.ranks.push_back({server, 0, "", "", ""});
  const auto found = [&pods](const LocalHost& host) {
    int server = -1;
    EXPECT_EQ(FindServer(pods, host, &server).message(), "");
    return server;
  };
  EXPECT_EQ(found({"", {"10.244.0.5"}, "x"}), 1);
  EXPECT_EQ(found({"", {"10.0.0.2"}, "x", 3}), 3);  // pods with their node's network
  EXPECT_EQ(found({"", {"192.168.0.1"}, "x", 2}), 2);
  EXPECT_EQ(found({"", {"10.244.0.5"}, "x", 3}), 1);
  EXPECT_CONTAINS(ErrorOf(pods, {"", {"10.0.0.2"}, "x"}), "uid-2 (10.0.0.2), uid-3 (10.0.0.2)");
  EXPECT_CONTAINS(ErrorOf(pods, {"", {"192.168.0.1"}, "x", 4}), "uid-0 (10.244.0.4)");
  EXPECT_EQ(pods.servers[0].address(), "10.244.0.4");
}

TEST(TheVariableGoesBeforeAddresses) {
  EXPECT_EQ(Found({"node-b", {"10.0.0.1"}, "node-c"}), 1);
  EXPECT_EQ(ErrorOf(Servers(), {"node-x", {"10.0.0.1"}, "node-c"}),
            "rank table \"t.json\": COLLOPS_SERVER_ID is \"node-x\", but the table's servers are "
            "10.0.0.1, node-b (10.0.0.2), node-c.example, fd00::4, 10.0.0.9 (10.0.0.5)");
}

TEST(NoServerOrTwoAreErrorsWithBothLists) {
  EXPECT_EQ(
      ErrorOf(Table({{"node-a", "10.0.0.1", ""}}), {"", {"10.0.0.3", "127.0.0.1"}, "node-x"}),
      "rank table \"t.json\": no server is this host: the servers are node-a (10.0.0.1); this "
      "host has the name node-x and the addresses 10.0.0.3, 127.0.0.1: set COLLOPS_SERVER_ID "
      "to this host's server_id");
  const RankTable bridges = Table({{"node-a", "172.17.0.1", ""}, {"node-b", "172.17.0.1", ""}});
  EXPECT_CONTAINS(
      ErrorOf(bridges, {"", {"172.17.0.1"}, "node-a"}),
      "more than one server is this host: node-a (172.17.0.1), node-b (172.17.0.1); this "
      "host has the name node-a");
  // The first part of an address is no name.
  EXPECT_CONTAINS(ErrorOf(Table({{"10.0.0.1", "", ""}}), {"", {}, "10"}), "the addresses none");
}

TEST(ThisHostHasANameAndAnAddress) {
  setenv("COLLOPS_SERVER_ID", "node-7", 1);
  const LocalHost host = collops::ThisHost();
  EXPECT_EQ(host.server_id, "node-7");
  EXPECT_FALSE(host.name.empty());
  for (const std::string& address : host.addresses) {
    collops::HostAddress bytes;
    EXPECT_TRUE(collops::ParseAddress(address, &bytes));
  }
}
