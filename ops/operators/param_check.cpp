#include "operators/param_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "operators/linear_parallel/param.h"

namespace collops {
namespace {

constexpr size_t kMaxCommDomain = 128;

constexpr const char* kEngines[] = {"hccl", "nccl", "cuda", "shm", "ucx"};

template <typename Param>
Status CheckReserved(const char* op, const Param& param) {
  for (size_t i = 0; i < std::size(param.rsv); ++i) {
    CHECK_ARG(param.rsv[i] == 0, ERROR_INVALID_PARAM, op, ": rsv[", i,
              "] is reserved, it must be 0", ", got ", static_cast<int>(param.rsv[i]));
  }
  return Ok();
}

Status CheckBackend(const char* op, const std::string& backend) {
  const bool is_lcal = backend == "lccl" || backend == "lcoc" || backend == "mc2";
  CHECK_ARG(
      !is_lcal, ERROR_INVALID_PARAM, op, ": backend \"", backend,
      "\" does not run this operator (nor does it in ATB); pass \"hccl\", \"nccl\", \"cuda\", ",
      "\"shm\" or \"ucx\"");
  CHECK_ARG(IsEngine(backend), ERROR_INVALID_PARAM, op, ": unknown backend \"", backend,
            "\"; pass \"hccl\", \"nccl\", \"cuda\", \"shm\" or \"ucx\"");
  return Ok();
}

// The even collectives exist on ATB's lccl, too; its lcoc and mc2 only multiply matrices.
Status CheckEvenBackend(const char* op, const std::string& backend) {
  CHECK_ARG(backend == "lccl" || IsEngine(backend), ERROR_INVALID_PARAM, op, ": unknown backend \"",
            backend, "\" for this operator; pass \"hccl\", \"lccl\", \"nccl\", \"cuda\", ",
            "\"shm\" or \"ucx\"");
  return Ok();
}

// ATB's three other names all run LinearParallel.
Status CheckLinearBackend(const char* op, const std::string& backend) {
  const bool is_lcal = backend == "lccl" || backend == "lcoc" || backend == "mc2";
  CHECK_ARG(
      is_lcal || IsEngine(backend), ERROR_INVALID_PARAM, op, ": unknown backend \"", backend,
      "\"; pass \"hccl\", \"lccl\", \"lcoc\", \"mc2\", \"nccl\", \"cuda\", \"shm\" or \"ucx\"");
  return Ok();
}

// A communicator of the caller's knows its size, so 0 means "as it says" then.
template <typename Param>
Status CheckRankSize(const char* op, const Param& param) {
  if (param.hcclComm != nullptr && param.rankSize == 0) return Ok();
  CHECK_ARG(param.rankSize >= 2, ERROR_INVALID_PARAM, op, ": rankSize must be >= 2, got ",
            param.rankSize);
  return Ok();
}

Status CheckReduceType(const char* op, const std::string& reduce_type) {
  CHECK_ARG(reduce_type == "sum" || reduce_type == "max" || reduce_type == "min",
            ERROR_INVALID_PARAM, op, ": reduceType must be \"sum\", \"max\" or \"min\", got \"",
            reduce_type, "\"");
  return Ok();
}

Status CheckEvenReduceType(const char* op, const char* field, const std::string& reduce_type,
                           const std::string& backend) {
  const bool known =
      reduce_type == "sum" || reduce_type == "max" || reduce_type == "min" || reduce_type == "prod";
  CHECK_ARG(known, ERROR_INVALID_PARAM, op, ": ", field,
            " must be \"sum\", \"max\", \"min\" or \"prod\", got \"", reduce_type, "\"");
  CHECK_ARG(reduce_type != "prod" || backend != "lccl", ERROR_INVALID_PARAM, op, ": ", field,
            " \"prod\" does not exist on backend \"lccl\": use \"hccl\"");
  return Ok();
}

Status CheckNotQuantised(const AllReduceParam& param) {
  CHECK_ARG(param.quantType == AllReduceParam::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM,
            "AllReduce: quantType ", static_cast<int>(param.quantType),
            " asks for a quantised AllReduce, which is not supported: leave quantType at 0 ",
            "(QUANT_TYPE_UNQUANT) and outDataType out");
  return Ok();
}

Status CheckRankTableFile(const char* op, const std::string& path) {
  if (path.empty()) return Ok();
  struct stat info = {};
  CHECK_ARG(stat(path.c_str(), &info) == 0, ERROR_INVALID_PARAM, op, ": rankTableFile \"", path,
            "\": ", std::strerror(errno));
  CHECK_ARG(S_ISREG(info.st_mode), ERROR_INVALID_PARAM, op, ": rankTableFile \"", path,
            "\" is not a regular file");
  return Ok();
}

// What ATB checks for every communication operator.
template <typename Param>
Status CheckDistributed(const char* op, const Param& param) {
  CHECK_ARG(param.commMode == COMM_MULTI_PROCESS || param.commMode == COMM_MULTI_THREAD,
            ERROR_INVALID_PARAM, op, ": commMode must be 0 (COMM_MULTI_PROCESS) or 1 ",
            "(COMM_MULTI_THREAD), got ", static_cast<int>(param.commMode));
  CHECK_ARG(param.commDomain.size() <= kMaxCommDomain, ERROR_INVALID_PARAM, op, ": commDomain has ",
            param.commDomain.size(), " characters, the limit is ", kMaxCommDomain);
  RETURN_IF_ERROR(CheckRankTableFile(op, param.rankTableFile));
  if (param.rankSize == 0) return Ok();  // ranks are checked against the communicator
  if (param.rank != -1) RETURN_IF_ERROR(CheckRank(op, param.rank, param.rankSize, ""));
  return CheckRankRoot(op, param.rankRoot, param.rankSize);
}

// What Send and Recv check: the peer last, and only against what the struct itself says.
template <typename Param>
Status CheckMessage(const char* op, const Param& param) {
  RETURN_IF_ERROR(CheckReserved(op, param));
  RETURN_IF_ERROR(CheckBackend(op, param.backend));
  RETURN_IF_ERROR(CheckRankSize(op, param));
  RETURN_IF_ERROR(CheckDistributed(op, param));
  return param.rankSize == 0 ? Ok() : CheckPeer(param, param.rank, param.rankSize);
}

// A list of the struct and its name.
struct NamedList {
  const char* name;
  const std::vector<int64_t>& numbers;
};

std::array<NamedList, 4> ListsOf(const AllToAllVParam& param) {
  return {{{"sendCounts", param.sendCounts},
           {"sdispls", param.sdispls},
           {"recvCounts", param.recvCounts},
           {"rdispls", param.rdispls}}};
}

// What the even collectives begin with.
template <typename Param>
Status CheckEven(const char* op, const Param& param) {
  RETURN_IF_ERROR(CheckReserved(op, param));
  RETURN_IF_ERROR(CheckEvenBackend(op, param.backend));
  return CheckRankSize(op, param);
}

// All that there is to check of a struct without fields of its own, in the operators that ATB's
// lccl lacks.
template <typename Param>
Status CheckUneven(const char* op, const Param& param) {
  RETURN_IF_ERROR(CheckReserved(op, param));
  RETURN_IF_ERROR(CheckBackend(op, param.backend));
  RETURN_IF_ERROR(CheckRankSize(op, param));
  return CheckDistributed(op, param);
}

}  // namespace

bool IsEngine(const std::string& backend) {
  return std::any_of(std::begin(kEngines), std::end(kEngines),
                     [&backend](const char* name) { return backend == name; });
}

Status CheckRank(const char* op, int rank, int rank_size, const std::string& source) {
  CHECK_ARG(rank >= 0 && rank < rank_size, ERROR_INVALID_PARAM, op, ": rank", source,
            " must be in [0, ", rank_size, "), got ", rank);
  return Ok();
}

Status CheckRankRoot(const char* op, int rank_root, int rank_size) {
  CHECK_ARG(rank_root >= 0 && rank_root < rank_size, ERROR_INVALID_PARAM, op,
            ": rankRoot must be in [0, ", rank_size, "), got ", rank_root);
  return Ok();
}

Status CheckParam(const AllGatherVParam& param) {
  return CheckUneven("AllGatherV", param);
}

Status CheckParam(const ReduceScatterVParam& param) {
  constexpr const char* kOp = "ReduceScatterV";
  RETURN_IF_ERROR(CheckReserved(kOp, param));
  RETURN_IF_ERROR(CheckBackend(kOp, param.backend));
  RETURN_IF_ERROR(CheckRankSize(kOp, param));
  RETURN_IF_ERROR(CheckReduceType(kOp, param.reduceType));
  return CheckDistributed(kOp, param);
}

Status CheckParam(const LinearParallelParam& param) {
  constexpr const char* kOp = "LinearParallel";
  RETURN_IF_ERROR(CheckReserved(kOp, param));
  RETURN_IF_ERROR(CheckLinearBackend(kOp, param.backend));
  RETURN_IF_ERROR(CheckRankSize(kOp, param));
  RETURN_IF_ERROR(CheckLinearKind(param));
  return CheckDistributed(kOp, param);
}

Status CheckParam(const AllGatherParam& param) {
  RETURN_IF_ERROR(CheckEven("AllGather", param));
  return CheckDistributed("AllGather", param);
}

Status CheckParam(const ReduceScatterParam& param) {
  constexpr const char* kOp = "ReduceScatter";
  RETURN_IF_ERROR(CheckEven(kOp, param));
  RETURN_IF_ERROR(CheckEvenReduceType(kOp, "reduceType", param.reduceType, param.backend));
  return CheckDistributed(kOp, param);
}

Status CheckParam(const AllReduceParam& param) {
  constexpr const char* kOp = "AllReduce";
  RETURN_IF_ERROR(CheckEven(kOp, param));
  RETURN_IF_ERROR(CheckEvenReduceType(kOp, "allReduceType", param.allReduceType, param.backend));
  RETURN_IF_ERROR(CheckNotQuantised(param));
  return CheckDistributed(kOp, param);
}

Status CheckParam(const BroadcastParam& param) {
  RETURN_IF_ERROR(CheckEven("Broadcast", param));
  return CheckDistributed("Broadcast", param);
}

Status CheckParam(const SendParam& param) {
  return CheckMessage("Send", param);
}

Status CheckParam(const RecvParam& param) {
  return CheckMessage("Recv", param);
}

Status CheckParam(const AllToAllParam& param) {
  RETURN_IF_ERROR(CheckEven("AllToAll", param));
  CHECK_ARG(!param.transpose || param.backend != "hccl", ERROR_INVALID_PARAM,
            "AllToAll: transpose does not exist on backend \"hccl\": use \"lccl\"");
  return CheckDistributed("AllToAll", param);
}

Status CheckLists(const AllToAllVParam& param, int rank_size) {
  for (const NamedList& list : ListsOf(param)) {
    CHECK_ARG(list.numbers.size() == static_cast<size_t>(rank_size), ERROR_INVALID_PARAM,
              "AllToAllV: ", list.name, " must have ", rank_size, " numbers, one per rank, got ",
              list.numbers.size());
  }
  return Ok();
}

Status CheckParam(const AllToAllVParam& param) {
  RETURN_IF_ERROR(CheckUneven("AllToAllV", param));
  if (param.rankSize != 0) RETURN_IF_ERROR(CheckLists(param, param.rankSize));
  for (const NamedList& list : ListsOf(param)) {
    for (size_t r = 0; r < list.numbers.size(); ++r) {
      CHECK_ARG(list.numbers[r] >= 0, ERROR_INVALID_PARAM, "AllToAllV: ", list.name, "[", r,
                "] must be >= 0, got ", list.numbers[r]);
    }
  }
  return Ok();
}

Status CheckParam(const AllToAllVV2Param& param) {
  return CheckUneven("AllToAllVV2", param);
}

}  // namespace collops
