#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/placement/job.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/status.h"

namespace collops {

// By what this host may stand in a rank table.
struct LocalHost {
  std::string server_id;               // COLLOPS_SERVER_ID, which goes before all else
  std::vector<std::string> addresses;  // of its interfaces, loopback last
  std::string name;
  int rank = -1;  // RANK_ID, of one of its ranks; -1: not set
};

LocalHost ThisHost();

// The server of the table that `host` is: the one that COLLOPS_SERVER_ID names; else the one whose
// container_ip, or else whose host_ip, or else whose server_id, is an address of the host; else the
// one whose server_id is its name, whole or up to the first dot. If none is, or more than one, the
// one with the rank RANK_ID; without that an error.
Status FindServer(const RankTable& table, const LocalHost& host, int* server);

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
  Voice voice = {};
};

// Where the caller names no table, RANK_TABLE_FILE holds, but not of a group of fewer ranks than it
// lists. An error if a table cannot be read, contradicts what is given, or places the rank on
// another host. Reads files; waits for nothing.
Status FindPlacement(const PlacementWanted& wanted, Placement* placement);

// An error if `table`, which is complete, contradicts the rank or rank_size of a group.
Status CheckTable(const RankTable& table, int rank, int rank_size, const Voice& voice);

// An error of a backend whose ranks must all be on one host, if `table`, which is complete, places
// them on several.
Status CheckOneHost(const std::string& backend, const RankTable& table);

// Its error, if the ranks have agreed on a place where those of several hosts meet.
Status CheckNoMeetAt(const std::string& backend, const std::string& meet_at);

// The rules of HCCL's loader and documents that hold for backend hccl alone: the file's name, the
// version, the range and number of the devices, their addresses. Some differ by the chip: `soc` is
// aclrtGetSocName's name, such as "Ascend910B3"; empty: the chip that the table's version is for.
Status CheckDeviceRules(const RankTable& table, const std::string& soc);

// Where the ranks of a job that is on several hosts meet first.
struct JobPlace {
  std::string address;       // of the host of the job's rank 0; empty: all ranks are on this host
  int port = 0;              // 0: COLLOPS_PORT
  bool is_first = false;     // this process is the job's rank 0
  std::string table_digest;  // of the job's rank table; empty without one
};

// For `rank` of a group whose table is `table`, which is complete, or null: by RANK_TABLE_FILE,
// which lists the whole job; else by the group's table; else by MASTER_ADDR, unless the launcher
// says that all ranks are on this host. An error if the ranks are on several hosts and no address
// is known.
Status FindJobPlace(const std::shared_ptr<const RankTable>& table, int rank, JobPlace* place);

// Of a group whose ranks have agreed on where they meet, "10.0.0.1:29577" or "[fe80::1%2]:29577";
// empty: on this host. Its rank 0 is the job's.
Status ReadJobPlace(const std::string& meet_at, int rank, JobPlace* place);

// Where a new process may find a group of its job that is on several hosts: MASTER_ADDR, and every
// host of RANK_TABLE_FILE, as the host of the job's rank 0 may be lost. Empty: the group is on this
// host. The table need not list the process or its host.
Status FindPlacesToJoin(std::vector<std::string>* addresses);

// The rank table of the whole job, RANK_TABLE_FILE; null without one. It may not be complete.
Status ReadJobTable(std::shared_ptr<const RankTable>* table);

// The digest of the rank table of the whole job, which names the job also for a group of some of
// its ranks; empty without one.
Status FindJobDigest(std::string* digest);

// An error if other hosts may know the job by another name.
Status CheckAcrossHosts(const JobIdentity& job);

}  // namespace collops
