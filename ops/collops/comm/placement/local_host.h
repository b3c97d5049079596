#pragma once

#include <string>
#include <vector>

#include "collops/comm/placement/rank_table.h"
#include "collops/core/status.h"

namespace collops {

// By what this host may stand in a rank table.
struct LocalHost {
  std::string server_id;               // COLLOPS_SERVER_ID, which goes before all else
  std::vector<std::string> addresses;  // of its interfaces, loopback last
  std::string name;
};

LocalHost ThisHost();

// The server of the table that `host` is: the one that COLLOPS_SERVER_ID names; else the one whose
// host_ip, or else whose server_id, is an address of the host; else the one whose server_id is its
// name, whole or up to the first dot. An error if none is, or more than one.
Status FindServer(const RankTable& table, const LocalHost& host, int* server);

}  // namespace collops
