#include "operators/create_operation.h"

#include <utility>

#include "comm/job.h"
#include "comm/registry.h"
#include "core/env.h"
#include "operators/all_gather.h"
#include "operators/all_gather_v.h"
#include "operators/all_reduce.h"
#include "operators/all_to_all.h"
#include "operators/all_to_all_v.h"
#include "operators/all_to_all_v_v2.h"
#include "operators/broadcast.h"
#include "operators/linear_parallel/engine.h"
#include "operators/linear_parallel/operator.h"
#include "operators/param_check.h"
#include "operators/recv.h"
#include "operators/reduce_scatter.h"
#include "operators/reduce_scatter_v.h"
#include "operators/send.h"

namespace collops {
namespace {

// What ATB runs on kernels of its own runs here on what "hccl" runs on.
bool IsLcal(const std::string& name) {
  return name == "lccl" || name == "lcoc" || name == "mc2";
}

// Also what is not replaced in this struct: a name that is mistyped would go unnoticed.
Status CheckReplacements(const char* op, const Env& env) {
  constexpr const char* kUse = "; use hccl, nccl, cuda, shm or ucx";
  for (const BackendReplacement& replacement : env.replacements) {
    const std::string& from = replacement.from;
    CHECK_ARG(from.empty() || IsEngine(from) || IsLcal(from), ERROR_INVALID_PARAM, op,
              ": COLLOPS_BACKEND=", env.backend, " replaces the unknown backend \"", from, "\"",
              kUse);
    CHECK_ARG(IsEngine(replacement.to), ERROR_INVALID_PARAM, op, ": COLLOPS_BACKEND=", env.backend,
              from.empty() ? "" : Concat(" replaces \"", from, "\" by"), from.empty() ? " is" : "",
              " the unknown backend \"", replacement.to, "\"", kUse);
  }
  return Ok();
}

Status ChooseBackend(const char* op, const Env& env, const std::string& name,
                     std::string* backend) {
  RETURN_IF_ERROR(CheckReplacements(op, env));
  *backend = env.ReplaceBackend(name);
  if (IsLcal(*backend)) *backend = env.ReplaceBackend("hccl");
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

// What a struct says of ranks besides rank and rankRoot; only messages name another one.
template <typename Param>
Status CheckPeer(const Param& /*param*/, int /*rank*/, int /*rank_size*/) {
  return Ok();
}

// A struct with a communicator may leave rank and rankSize to it, but not contradict it.
template <typename Param>
Status UseHandle(const char* op, const Param& param, const std::string& backend,
                 std::shared_ptr<Communicator>* communicator) {
  std::shared_ptr<Communicator> found;
  RETURN_IF_ERROR(Registry::Instance().Adopt(param.hcclComm, backend, param.commMode, &found));
  CHECK_ARG(found->spec().backend == backend, ERROR_INVALID_PARAM, op,
            ": hcclComm is a communicator of backend \"", found->spec().backend, "\", but \"",
            backend, "\" runs this struct: set backend or COLLOPS_BACKEND to it");
  CHECK_ARG(param.rankSize == 0 || param.rankSize == found->size(), ERROR_INVALID_PARAM, op,
            ": rankSize is ", param.rankSize, " but hcclComm has ", found->size(),
            " ranks: pass that or 0");
  // Most structs' rank is 0 unless it is set; without a rankSize that is one that was left out.
  const bool left_out = param.rank == -1 || (param.rankSize == 0 && param.rank == Param().rank);
  CHECK_ARG(left_out || param.rank == found->rank(), ERROR_INVALID_PARAM, op, ": rank is ",
            param.rank, " but hcclComm is rank ", found->rank(), ": pass that or -1");
  RETURN_IF_ERROR(CheckRankRoot(op, param.rankRoot, found->size()));
  RETURN_IF_ERROR(CheckPeer(param, found->rank(), found->size()));
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
  RETURN_IF_ERROR(CheckPeer(param, spec.rank, param.rankSize));
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

Status ParseReduceType(const char* op, const std::string& name, ReduceOp* reduce_op) {
  CHECK_ARG(ParseReduceOp(name.c_str(), reduce_op), ERROR_INVALID_PARAM, op,
            ": unknown reduction \"", name, "\"");
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
  RETURN_IF_ERROR(ParseReduceType("ReduceScatterV", param.reduceType, &op));
  *operation = std::make_unique<ReduceScatterV>(std::move(communicator), param.rankRoot, op);
  return Ok();
}

Status CreateOperation(const AllGatherParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("AllGather", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllGather", param, &communicator));
  *operation = std::make_unique<AllGather>(std::move(communicator), param.rankRoot);
  return Ok();
}

Status CreateOperation(const ReduceScatterParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("ReduceScatter", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("ReduceScatter", param, &communicator));
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("ReduceScatter", param.reduceType, &op));
  *operation =
      std::make_unique<ReduceScatter>(std::move(communicator), param.rankRoot, op, param.backend);
  return Ok();
}

Status CreateOperation(const AllReduceParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("AllReduce", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllReduce", param, &communicator));
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("AllReduce", param.allReduceType, &op));
  *operation =
      std::make_unique<AllReduce>(std::move(communicator), param.rankRoot, op, param.backend);
  return Ok();
}

Status CreateOperation(const BroadcastParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("Broadcast", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("Broadcast", param, &communicator));
  *operation = std::make_unique<Broadcast>(std::move(communicator), param.rankRoot);
  return Ok();
}

Status CreateOperation(const SendParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("Send", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("Send", param, &communicator));
  *operation = std::make_unique<Send>(std::move(communicator), static_cast<int>(param.destRank));
  return Ok();
}

Status CreateOperation(const RecvParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("Recv", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("Recv", param, &communicator));
  *operation = std::make_unique<Recv>(std::move(communicator), static_cast<int>(param.srcRank));
  return Ok();
}

Status CreateOperation(const AllToAllParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("AllToAll", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllToAll", param, &communicator));
  *operation = std::make_unique<AllToAll>(std::move(communicator), param.rankRoot, param.transpose);
  return Ok();
}

Status CreateOperation(const AllToAllVParam& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("AllToAllV", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllToAllV", param, &communicator));
  RETURN_IF_ERROR(CheckLists(param, communicator->size()));
  *operation = std::make_unique<AllToAllV>(std::move(communicator), param);
  return Ok();
}

Status CreateOperation(const AllToAllVV2Param& param, std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("AllToAllVV2", operation));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllToAllVV2", param, &communicator));
  *operation = std::make_unique<AllToAllVV2>(std::move(communicator), param.rankRoot);
  return Ok();
}

Status CreateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation) {
  return CreateOperation(param, OperationOptions{}, operation);
}

Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(CheckResult("LinearParallel", operation));
  if (!options.engine.empty()) RETURN_IF_ERROR(CheckEngineName(options.engine));
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("LinearParallel", param, &communicator));
  *operation = std::make_unique<LinearParallel>(std::move(communicator), param, options.engine);
  return Ok();
}

Status RefuseEngine(const OperationOptions& options) {
  CHECK_ARG(options.engine.empty(), ERROR_INVALID_PARAM, "Operation: engine \"", options.engine,
            "\" cannot be chosen: LinearParallel alone has engines");
  return Ok();
}

Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation) {
  const auto* before = dynamic_cast<const LinearParallel*>(operation->get());
  CHECK_ARG(before != nullptr, ERROR_INVALID_PARAM,
            "LinearParallel: cannot update an operation that is a ", (*operation)->Name());
  std::unique_ptr<Operation> updated;
  RETURN_IF_ERROR(CreateOperation(param, OperationOptions{before->engine()}, &updated));
  dynamic_cast<LinearParallel&>(*updated).TakeWeight(*before);
  *operation = std::move(updated);
  return Ok();
}

}  // namespace collops
