#include "collops/operators/framework/param_check.h"

#include "collops/comm/placement/rank_table/table_file.h"

namespace collops {
namespace {

constexpr size_t kMaxCommDomain = 128;

}  // namespace

Status CheckGroup(const char* op, const GroupFields& group, unsigned names) {
  for (size_t i = 0; i < group.rsv_size; ++i) {
    COLLOPS_CHECK_ARG(group.rsv[i] == 0, ERROR_INVALID_PARAM, op, ": rsv[", i,
                      "] is reserved, it must be 0", ", got ", static_cast<int>(group.rsv[i]));
  }
  COLLOPS_RETURN_IF_ERROR(CheckBackendName(op, group.backend, names));
  // With an hcclComm, rankSize 0 means the communicator's size.
  if (group.hccl_comm != nullptr && group.rank_size == 0) return Ok();
  COLLOPS_CHECK_ARG(group.rank_size >= 2, ERROR_INVALID_PARAM, op, ": rankSize must be >= 2, got ",
                    group.rank_size);
  return Ok();
}

Status CheckDistributed(const char* op, const GroupFields& group) {
  COLLOPS_CHECK_ARG(group.comm_mode == COMM_MULTI_PROCESS || group.comm_mode == COMM_MULTI_THREAD,
                    ERROR_INVALID_PARAM, op, ": commMode must be 0 (COMM_MULTI_PROCESS) or 1 ",
                    "(COMM_MULTI_THREAD), got ", static_cast<int>(group.comm_mode));
  COLLOPS_CHECK_ARG(group.comm_domain.size() <= kMaxCommDomain, ERROR_INVALID_PARAM, op,
                    ": commDomain has ", group.comm_domain.size(), " characters, the limit is ",
                    kMaxCommDomain);
  if (!group.rank_table_file.empty()) {
    const std::string name = Concat(op, ": rankTableFile \"", group.rank_table_file, "\"");
    COLLOPS_RETURN_IF_ERROR(rank_table::CheckTableFile(group.rank_table_file, name));
  }
  if (group.rank_size == 0) return Ok();  // ranks are checked against the communicator
  if (group.rank != -1) COLLOPS_RETURN_IF_ERROR(CheckRank(op, group.rank, group.rank_size, ""));
  return CheckRankRoot(op, group.rank_root, group.rank_size);
}

Status CheckRank(const char* op, int rank, int rank_size, const std::string& source) {
  COLLOPS_CHECK_ARG(rank >= 0 && rank < rank_size, ERROR_INVALID_PARAM, op, ": rank", source,
                    " must be in [0, ", rank_size, "), got ", rank);
  return Ok();
}

Status CheckRankRoot(const char* op, int rank_root, int rank_size) {
  COLLOPS_CHECK_ARG(rank_root >= 0 && rank_root < rank_size, ERROR_INVALID_PARAM, op,
                    ": rankRoot must be in [0, ", rank_size, "), got ", rank_root);
  return Ok();
}

Status CheckReduceType(const char* op, const char* field, const std::string& type,
                       const std::string& backend) {
  COLLOPS_CHECK_ARG(type == "sum" || type == "max" || type == "min" || type == "prod",
                    ERROR_INVALID_PARAM, op, ": ", field,
                    " must be \"sum\", \"max\", \"min\" or \"prod\", got \"", type, "\"");
  COLLOPS_CHECK_ARG(type != "prod" || backend != "lccl", ERROR_INVALID_PARAM, op, ": ", field,
                    " \"prod\" does not exist on backend \"lccl\": use \"hccl\"");
  return Ok();
}

Status CheckPeer(const char* op, const char* field, int64_t peer, int rank, int rank_size) {
  COLLOPS_CHECK_ARG(peer < rank_size, ERROR_INVALID_PARAM, op, ": ", field, " must be in [0, ",
                    rank_size, "), got ", peer);
  COLLOPS_CHECK_ARG(peer != rank, ERROR_INVALID_PARAM, op, ": ", field, " ", peer,
                    " is this rank itself: pass another rank");
  return Ok();
}

}  // namespace collops
