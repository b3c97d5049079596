#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collops/core/status.h"
#include "collops/core/tuning.h"

namespace [[gnu::visibility("default")]] collops {

struct RankTable;

namespace control {
class Control;
struct Introduction;
}  // namespace control

// ATB's CommMode: whether the ranks are processes, or threads of one process.
enum CommMode : int {
  COMM_UNDEFINED = -1,
  COMM_MULTI_PROCESS = 0,
  COMM_MULTI_THREAD = 1,
};

// The parameters of a communicator.
struct CommunicatorSpec {
  std::string backend;
  std::string comm_domain;
  int rank = 0;
  int rank_size = 0;
  CommMode comm_mode = COMM_MULTI_PROCESS;
  double timeout_s = 300.0;
  Tuning tuning = {};
  // The job, if the ranks have agreed on it by other means; empty: the launcher's.
  std::string job_id = "";
  // Where the ranks of `job_id` meet, "10.0.0.1:29577", an address of rank 0's host; empty: they
  // are on one host.
  std::string meet_at = "";
  // Called repeatedly during first contact, which its error ends: a rank cannot come any more.
  std::function<Status()> watch = {};
  // Set in a subgroup that lives no longer than the group it was split from: a failure in one of
  // the two ends the other.
  std::weak_ptr<control::Control> parent = {};
  // Where the ranks run; null without a rank table. The table may not be complete yet.
  std::shared_ptr<const RankTable> table = nullptr;
  // Of a subgroup, which no table describes: the digest of the group's table. It names the job.
  std::string table_digest = "";
  // Of a subgroup on several hosts: what its ranks have told each other over the parent.
  std::shared_ptr<control::Introduction> introduction = nullptr;
  // Of a subgroup whose members are known to be on one host.
  bool one_host = false;
  // Of a subgroup: the backend's own part of it, which was made when the group was split; and
  // whether the group has no board, so that the subgroup has none.
  std::shared_ptr<void> engine_part = nullptr;
  bool has_no_board = false;
  // Of a subgroup: this process's rank in the group from which it comes, however often that was
  // split; -1: it is no subgroup.
  int top_rank = -1;
};

}  // namespace collops
