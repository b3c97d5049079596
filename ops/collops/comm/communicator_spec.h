#pragma once

#include <memory>
#include <string>

#include "collops/core/tuning.h"

namespace [[gnu::visibility("default")]] collops {

struct RankTable;

// ATB's CommMode: whether the ranks are processes, or threads of one process.
enum CommMode : int {
  COMM_UNDEFINED = -1,
  COMM_MULTI_PROCESS = 0,
  COMM_MULTI_THREAD = 1,
};

// How messages name what the caller has passed: the fields of a struct, or the arguments of the
// plain level's init().
struct Voice {
  const char* begin = "";  // of a message
  const char* rank_size = "rankSize";
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
  // Where the ranks run; null without a rank table. The table may not be complete yet.
  std::shared_ptr<const RankTable> table = nullptr;
  Voice voice = {};
};

}  // namespace collops
