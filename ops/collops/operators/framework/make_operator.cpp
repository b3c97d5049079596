#include "collops/operators/framework/make_operator.h"

#include <utility>

#include "collops/comm/placement/placement.h"
#include "collops/comm/registry.h"
#include "collops/core/env.h"

namespace collops {
namespace {

using CheckOfRanks = std::function<Status(int rank, int rank_size)>;

// FindPlacement for a struct.
Status FindPlacementOf(const char* op, const GroupParam& group, int rank, int rank_size,
                       Placement* placement) {
  const bool threads = group.commMode == COMM_MULTI_THREAD;
  const Status found = FindPlacement({rank, rank_size, group.rankTableFile, threads}, placement);
  return found.ok() ? Ok() : Error(found.code(), op, ": ", found.message());
}

// Sets the rank, which the struct may leave to the launcher or a rank table, and the table.
Status Place(const char* op, const GroupParam& group, CommunicatorSpec* spec) {
  Placement placement;
  COLLOPS_RETURN_IF_ERROR(FindPlacementOf(op, group, group.rank, group.rankSize, &placement));
  COLLOPS_CHECK_ARG(
      placement.rank != -1, ERROR_INVALID_PARAM, op,
      ": rank is -1 and no launcher sets it: set rank in [0, ", group.rankSize,
      "), or hcclComm, or start the ranks with collops run, torchrun, mpirun or srun");
  if (group.rank == -1) {
    COLLOPS_RETURN_IF_ERROR(
        CheckRank(op, placement.rank, group.rankSize, " (from " + placement.source + ")"));
  }
  spec->rank = placement.rank;
  spec->table = std::move(placement.table);
  return Ok();
}

// A struct with an hcclComm may omit rank and rankSize, but must not contradict the communicator.
Status UseHandle(const char* op, const GroupParam& group, const std::string& backend,
                 const CheckOfRanks& check_ranks, std::shared_ptr<Communicator>* communicator) {
  std::shared_ptr<Communicator> found;
  COLLOPS_RETURN_IF_ERROR(
      Registry::Instance().Adopt(group.hcclComm, backend, group.commMode, &found));
  COLLOPS_CHECK_ARG(found->spec().backend == backend, ERROR_INVALID_PARAM, op,
                    ": hcclComm is a communicator of backend \"", found->spec().backend,
                    "\", but \"", backend,
                    "\" runs this struct: set backend or COLLOPS_BACKEND to it");
  COLLOPS_CHECK_ARG(group.rankSize == 0 || group.rankSize == found->size(), ERROR_INVALID_PARAM, op,
                    ": rankSize is ", group.rankSize, " but hcclComm has ", found->size(),
                    " ranks: pass that or 0");
  COLLOPS_CHECK_ARG(group.rank == -1 || group.rank == found->rank(), ERROR_INVALID_PARAM, op,
                    ": rank is ", group.rank, " but hcclComm is rank ", found->rank(),
                    ": pass that or -1");
  if (!group.rankTableFile.empty()) {
    Placement placement;
    COLLOPS_RETURN_IF_ERROR(FindPlacementOf(op, group, found->rank(), found->size(), &placement));
  }
  COLLOPS_RETURN_IF_ERROR(CheckRankRoot(op, group.rankRoot, found->size()));
  COLLOPS_RETURN_IF_ERROR(check_ranks(found->rank(), found->size()));
  *communicator = std::move(found);
  return Ok();
}

}  // namespace

Status FindGroup(const char* op, const GroupParam& group, const CheckOfRanks& check_ranks,
                 std::shared_ptr<Communicator>* communicator) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  CommunicatorSpec spec;
  COLLOPS_RETURN_IF_ERROR(ResolveBackend(op, env, group.backend, &spec.backend));
  if (group.hcclComm != nullptr) {
    return UseHandle(op, group, spec.backend, check_ranks, communicator);
  }
  COLLOPS_RETURN_IF_ERROR(Place(op, group, &spec));
  COLLOPS_RETURN_IF_ERROR(check_ranks(spec.rank, group.rankSize));
  spec.comm_domain = group.commDomain;
  spec.rank_size = group.rankSize;
  spec.comm_mode = group.commMode;
  spec.timeout_s = env.timeout_s;
  spec.tuning = env.tuning;
  return Registry::Instance().Get(spec, communicator);
}

}  // namespace collops
