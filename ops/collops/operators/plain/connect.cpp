#include "collops/operators/plain/connect.h"

#include <cmath>
#include <utility>

#include "collops/comm/backends/backend_table.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/comm/registry.h"
#include "collops/core/deadline.h"
#include "collops/core/env.h"
#include "collops/core/process/interrupt.h"
#include "collops/operators/framework/param_check.h"

namespace collops {
namespace {

constexpr size_t kMaxDomain = 128;

// Before anything is looked up; in Python most of it is found earlier.
Status CheckGiven(const CommunicatorSpec& spec) {
  COLLOPS_CHECK_ARG(spec.comm_domain.size() <= kMaxDomain, ERROR_INVALID_PARAM,
                    "init: comm_domain has ", spec.comm_domain.size(), " characters, the limit is ",
                    kMaxDomain);
  COLLOPS_CHECK_ARG(std::isfinite(spec.timeout_s) && spec.timeout_s >= 0, ERROR_INVALID_PARAM,
                    "init: timeout_s must be a number of seconds above 0, got ", spec.timeout_s);
  COLLOPS_CHECK_ARG(spec.meet_at.empty() || !spec.job_id.empty(), ERROR_INVALID_PARAM,
                    "init: meet_at is \"", spec.meet_at,
                    "\" without a job_id: pass that of the ranks that meet there");
  return Ok();
}

Status CheckPlace(int rank, int rank_size) {
  COLLOPS_CHECK_ARG(rank != -1 && rank_size != -1, ERROR_INVALID_PARAM,
                    "init: nothing says which rank this process is, and of how many: start it ",
                    "with `collops run -n N PROGRAM`, torchrun, mpirun or srun, pass rank and ",
                    "rank_size, or set COLLOPS_RANK and COLLOPS_RANK_SIZE");
  COLLOPS_CHECK_ARG(rank_size >= 1, ERROR_INVALID_PARAM, "init: rank_size must be at least 1, got ",
                    rank_size);
  COLLOPS_CHECK_ARG(rank >= 0 && rank < rank_size, ERROR_INVALID_PARAM,
                    "init: rank must be from 0 to ", rank_size - 1, ", got ", rank);
  return Ok();
}

Status CheckBackendName(const std::string& name) {
  if (FindBackend(name) != nullptr) return Ok();
  std::string known;
  for (const Backend& backend : BackendTable()) {
    known += Concat(known.empty() ? "\"" : ", \"", backend.name, "\"");
  }
  return Error(ERROR_INVALID_PARAM, "init: no backend is called \"", name, "\"; pass one of ",
               known);
}

// ucx if the table, or without one the launcher, says that the ranks are on several hosts.
std::string CpuBackend(const RankTable* table) {
  if (table == nullptr) return DetectLauncher().spread == Spread::kHosts ? "ucx" : "shm";
  return !table->completed || table->servers.size() == 1 ? "shm" : "ucx";
}

// The backend of a group whose table somebody still writes is that of the complete one.
Status ChooseBackend(const CommunicatorSpec& spec, double timeout_s, std::string* backend) {
  if (!spec.job_id.empty()) {
    *backend = spec.meet_at.empty() ? "shm" : "ucx";
    return Ok();
  }
  RankTable complete;
  const RankTable* table = spec.table.get();
  if (table != nullptr && !table->completed) {
    const auto watch = []() -> Status {
      COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
      return Ok();
    };
    COLLOPS_RETURN_IF_ERROR(
        control::AwaitRankTable(*table, Deadline::After(timeout_s), watch, &complete));
    table = &complete;
  }
  *backend = CpuBackend(table);
  return Ok();
}

}  // namespace

Status ConnectGroup(CommunicatorSpec spec, const std::string& tuning,
                    std::shared_ptr<Communicator>* communicator) {
  COLLOPS_RETURN_IF_ERROR(CheckGiven(spec));
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  const bool threads = spec.comm_mode == COMM_MULTI_THREAD;
  Placement placement;
  spec.voice = {"init: ", "rank_size"};
  COLLOPS_RETURN_IF_ERROR(
      FindPlacement({spec.rank, spec.rank_size, "", threads, spec.voice}, &placement));
  COLLOPS_RETURN_IF_ERROR(CheckPlace(placement.rank, placement.rank_size));
  spec.rank = placement.rank;
  spec.rank_size = placement.rank_size;
  spec.table = std::move(placement.table);
  const bool has_timeout = spec.timeout_s > 0;
  if (!has_timeout) spec.timeout_s = env.timeout_s;
  spec.tuning = env.tuning;
  const Status sizes = ParseTuning(tuning, &spec.tuning);
  COLLOPS_CHECK_ARG(sizes.ok(), sizes.code(), "init: tuning=", tuning, ": ", sizes.message());
  if (spec.backend.empty() && threads) spec.backend = "shm";
  if (spec.backend.empty())
    COLLOPS_RETURN_IF_ERROR(ChooseBackend(spec, spec.timeout_s, &spec.backend));
  COLLOPS_RETURN_IF_ERROR(CheckBackendName(spec.backend));
  COLLOPS_RETURN_IF_ERROR(ResolveBackend("init", env, spec.backend, &spec.backend));
  COLLOPS_RETURN_IF_ERROR(Registry::Instance().Get(spec, communicator));
  if (has_timeout) (*communicator)->set_timeout_s(spec.timeout_s);
  return (*communicator)->Connect();
}

Status JoinGroup(CommunicatorSpec spec, std::shared_ptr<Communicator>* communicator) {
  COLLOPS_RETURN_IF_ERROR(CheckGiven(spec));
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  spec.voice = {"init: ", "rank_size"};
  if (spec.timeout_s == 0) spec.timeout_s = env.timeout_s;
  if (spec.backend.empty() && spec.comm_mode == COMM_MULTI_THREAD) spec.backend = "shm";
  if (spec.backend.empty()) {
    // It is no rank of the table, which only says of which kind the group is.
    CommunicatorSpec of_job = spec;
    COLLOPS_RETURN_IF_ERROR(ReadJobTable(&of_job.table));
    COLLOPS_RETURN_IF_ERROR(ChooseBackend(of_job, spec.timeout_s, &spec.backend));
  }
  COLLOPS_RETURN_IF_ERROR(CheckBackendName(spec.backend));
  COLLOPS_RETURN_IF_ERROR(ResolveBackend("init", env, spec.backend, &spec.backend));
  return Communicator::Join(spec, communicator);
}

}  // namespace collops
