#include "operators/create_operation.h"

#include <utility>

#include "comm/job.h"
#include "comm/registry.h"
#include "core/env.h"
#include "operators/all_gather_v.h"
#include "operators/param_check.h"
#include "operators/reduce_scatter_v.h"

namespace collops {
namespace {

Status ChooseBackend(const char* op, const Env& env, const std::string& name,
                     std::string* backend) {
  *backend = env.ReplaceBackend(name);
  CHECK_ARG(IsEngine(*backend), ERROR_INVALID_PARAM, op, ": COLLOPS_BACKEND=", env.backend,
            " replaces \"", name, "\" by the unknown backend \"", *backend,
            "\"; use hccl, nccl, cuda, shm or ucx");
  return Ok();
}

// -1 means that whoever started this process says the rank.
Status ChooseRank(const char* op, int given, int rank_size, int* rank) {
  *rank = given;
  if (given != -1) return Ok();
  const Launcher launcher = DetectLauncher();
  CHECK_ARG(launcher.rank != -1, ERROR_INVALID_PARAM, op,
            ": rank is -1 and no launcher says it: set rank in [0, ", rank_size,
            "), or hcclComm, or start the ranks with run_ranks, torchrun, mpirun or srun");
  *rank = launcher.rank;
  return CheckRank(op, *rank, rank_size, " (from " + launcher.name + ")");
}

// A struct with a communicator may leave rank and rankSize to it, but not contradict it.
template <typename Param>
Status UseHandle(const char* op, const Param& param, const std::string& backend,
                 std::shared_ptr<Communicator>* communicator) {
  std::shared_ptr<Communicator> found;
  RETURN_IF_ERROR(Registry::Instance().FromHandle(param.hcclComm, &found));
  CHECK_ARG(found->spec().backend == backend, ERROR_INVALID_PARAM, op,
            ": hcclComm is a communicator of backend \"", found->spec().backend, "\", but \"",
            backend, "\" runs this struct: set backend or COLLOPS_BACKEND to it");
  CHECK_ARG(param.rankSize == 0 || param.rankSize == found->size(), ERROR_INVALID_PARAM, op,
            ": rankSize is ", param.rankSize, " but hcclComm has ", found->size(),
            " ranks: pass that or 0");
  CHECK_ARG(param.rank == -1 || param.rank == found->rank(), ERROR_INVALID_PARAM, op, ": rank is ",
            param.rank, " but hcclComm is rank ", found->rank(), ": pass that or -1");
  RETURN_IF_ERROR(CheckRankRoot(op, param.rankRoot, found->size()));
  *communicator = std::move(found);
  return Ok();
}

template <typename Param>
Status FindCommunicator(const char* op, const Param& param,
                        std::shared_ptr<Communicator>* communicator) {
  RETURN_IF_ERROR(CheckParam(param));
  CHECK_ARG(param.rankTableFile.empty(), ERROR_UNSUPPORTED, op, ": rankTableFile \"",
            param.rankTableFile, "\": rank tables are not yet supported by this version");
  Env env;
  RETURN_IF_ERROR(Env::Read(&env));
  CommunicatorSpec spec;
  RETURN_IF_ERROR(ChooseBackend(op, env, param.backend, &spec.backend));
  if (param.hcclComm != nullptr) return UseHandle(op, param, spec.backend, communicator);
  RETURN_IF_ERROR(ChooseRank(op, param.rank, param.rankSize, &spec.rank));
  spec.comm_domain = param.commDomain;
  spec.rank_size = param.rankSize;
  spec.comm_mode = param.commMode;
  spec.timeout_s = env.timeout_s;
  return Registry::Instance().Get(spec, communicator);
}

Status CheckResult(const char* op, const std::unique_ptr<Operation>* operation) {
  CHECK_ARG(operation != nullptr, ERROR_INVALID_PARAM, op,
            ": the place for the operation is null: pass the address of a unique_ptr");
  return Ok();
}

}  // namespace

Status CreateOperation(const AllGatherVParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("AllGatherV", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllGatherV", param, &communicator));
  *operation = std::make_unique<AllGatherV>(std::move(communicator), param.rankRoot);
  return Ok();
}

Status CreateOperation(const ReduceScatterVParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("ReduceScatterV", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("ReduceScatterV", param, &communicator));
  ReduceOp op = ReduceOp::kSum;
  CHECK_ARG(ParseReduceOp(param.reduceType.c_str(), &op), ERROR_INVALID_PARAM,
            "ReduceScatterV: unknown reduceType \"", param.reduceType, "\"");
  *operation = std::make_unique<ReduceScatterV>(std::move(communicator), param.rankRoot, op);
  return Ok();
}

}  // namespace collops
