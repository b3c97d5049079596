#pragma once

#include <memory>
#include <string>

#include "collops/comm/placement/job.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/status.h"

namespace collops {

// What is said of a group's ranks: by the caller, the launcher, and a rank table where there is
// one.
struct Placement {
  int rank = -1;       // -1: nobody says
  int rank_size = -1;  // -1: nobody says
  std::string source;  // what says the rank, where the caller does not
  // Whoever writes it may not be done: then it is read again at first contact.
  std::shared_ptr<const RankTable> table = nullptr;
};

// What the caller says of this process; -1 and empty where he says nothing.
struct PlacementWanted {
  int rank = -1;
  int rank_size = -1;
  std::string table_file = "";
  bool threads = false;  // the ranks are threads of this process: RANK_TABLE_FILE is not theirs
};

// Where the caller names no table, RANK_TABLE_FILE holds, but not of a group of fewer ranks than it
// lists. An error if a table cannot be read, contradicts what is given, or places the rank on
// another host. Reads files; waits for nothing.
Status FindPlacement(const PlacementWanted& wanted, Placement* placement);

// An error if `table`, which is complete, contradicts the rank or rank_size of a group.
Status CheckTable(const RankTable& table, int rank, int rank_size);

// An error of a backend whose ranks must all be on one host, if `table`, which is complete, places
// them on several.
Status CheckOneHost(const std::string& backend, const RankTable& table);

// HCCL's own rules, which hold for backend hccl alone: device_ip everywhere on several servers,
// valid, unique and of one family; as many devices on each server; a device given once; the ranks
// of a server follow each other.
Status CheckDeviceRules(const RankTable& table);

}  // namespace collops
