#pragma once

#include <memory>
#include <string>

#include "collops/comm/placement/job.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/status.h"

namespace collops {

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

// The digest of the rank table of the whole job, RANK_TABLE_FILE, which names the job also for a
// group of some of its ranks; empty without one.
Status FindJobDigest(std::string* digest);

// An error if other hosts may know the job by another name.
Status CheckAcrossHosts(const JobIdentity& job);

}  // namespace collops
