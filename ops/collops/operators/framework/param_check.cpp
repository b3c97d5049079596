#include "collops/operators/framework/param_check.h"

#include <algorithm>

#include "collops/comm/backends/backend_table.h"
#include "collops/comm/placement/rank_table.h"

namespace collops {
namespace {

struct NameRow {
  const char* name;
  BackendNames kind;
};

// What ATB runs on kernels of its own, and we on kAtbEngine.
constexpr NameRow kAtbNames[] = {
    {"lccl", kLcclName}, {"lcoc", kMatrixNames}, {"mc2", kMatrixNames}};
constexpr char kAtbEngine[] = "hccl";

// In the order in which messages list them.
std::vector<std::string> Names(unsigned allowed) {
  std::vector<std::string> names;
  for (const Backend& backend : BackendTable()) {
    if ((allowed & kEngineNames) != 0) names.emplace_back(backend.name);
    if (backend.name != std::string(kAtbEngine)) continue;
    for (const NameRow& row : kAtbNames) {
      if ((allowed & row.kind) != 0) names.emplace_back(row.name);
    }
  }
  return names;
}

bool Has(unsigned allowed, const std::string& name) {
  const std::vector<std::string> names = Names(allowed);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// hccl, nccl, cuda, shm or ucx; each with `quote` around it.
std::string List(unsigned allowed, const char* quote) {
  const std::vector<std::string> names = Names(allowed);
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += Concat(i == 0 ? "" : i + 1 < names.size() ? ", " : " or ", quote, names[i], quote);
  }
  return text;
}

Status CheckReplacements(const char* op, const Env& env) {
  for (const BackendReplacement& replacement : env.replacements) {
    const std::string& from = replacement.from;
    COLLOPS_CHECK_ARG(from.empty() || Has(kAllNames, from), ERROR_INVALID_PARAM, op,
                      ": COLLOPS_BACKEND=", env.backend, " replaces the unknown backend \"", from,
                      "\"; use ", List(kEngineNames, ""));
    COLLOPS_CHECK_ARG(Has(kEngineNames, replacement.to), ERROR_INVALID_PARAM, op,
                      ": COLLOPS_BACKEND=", env.backend,
                      from.empty() ? "" : Concat(" replaces \"", from, "\" by"),
                      from.empty() ? " is" : "", " the unknown backend \"", replacement.to,
                      "\"; use ", List(kEngineNames, ""));
  }
  return Ok();
}

constexpr size_t kMaxCommDomain = 128;

}  // namespace

Status CheckBackendName(const char* op, const std::string& name, unsigned allowed) {
  if (Has(allowed, name)) return Ok();
  COLLOPS_CHECK_ARG(!Has(kAllNames, name), ERROR_INVALID_PARAM, op, ": backend \"", name,
                    "\" does not run this operator (nor does it in ATB); pass ",
                    List(allowed, "\""));
  return Error(ERROR_INVALID_PARAM, op, ": unknown backend \"", name, "\"; pass ",
               List(allowed, "\""));
}

std::vector<std::string> KnownBackendNames() {
  return Names(kAllNames);
}

Status ResolveBackend(const char* op, const Env& env, const std::string& name,
                      std::string* backend) {
  COLLOPS_RETURN_IF_ERROR(CheckReplacements(op, env));
  *backend = env.ReplaceBackend(name);
  if (Has(kLcclName | kMatrixNames, *backend)) *backend = env.ReplaceBackend(kAtbEngine);
  return Ok();
}

Status CheckReserved(const char* op, const char* field, const uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    COLLOPS_CHECK_ARG(bytes[i] == 0, ERROR_INVALID_PARAM, op, ": ", field, "[", i,
                      "] is reserved, it must be 0, got ", static_cast<int>(bytes[i]));
  }
  return Ok();
}

Status CheckBackendAndSize(const char* op, const GroupParam& group, unsigned names) {
  COLLOPS_RETURN_IF_ERROR(CheckBackendName(op, group.backend, names));
  // With an hcclComm, rankSize 0 means the communicator's size.
  if (group.hcclComm != nullptr && group.rankSize == 0) return Ok();
  COLLOPS_CHECK_ARG(group.rankSize >= 2, ERROR_INVALID_PARAM, op, ": rankSize must be >= 2, got ",
                    group.rankSize);
  return Ok();
}

Status CheckDomainNumber(const char* op, const GroupParam& group) {
  constexpr int64_t kMost = 65535;
  // lccl's own form is "number" or "number:MB".
  const std::string number = group.commDomain.substr(0, group.commDomain.find(':'));
  const bool is_number =
      !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  if (group.backend != "lccl" || !is_number) return Ok();
  int64_t value = 0;
  for (const char digit : number) value = std::min(value * 10 + (digit - '0'), kMost + 1);
  COLLOPS_CHECK_ARG(value <= kMost, ERROR_COMM_EMPTY, op,
                    ": as a number, commDomain of backend \"lccl\" must be from 0 to ", kMost,
                    ", got ", number);
  return Ok();
}

Status CheckDistributed(const char* op, const GroupParam& group) {
  COLLOPS_CHECK_ARG(group.commMode == COMM_MULTI_PROCESS || group.commMode == COMM_MULTI_THREAD,
                    ERROR_INVALID_PARAM, op, ": commMode must be 0 (COMM_MULTI_PROCESS) or 1 ",
                    "(COMM_MULTI_THREAD), got ", static_cast<int>(group.commMode));
  COLLOPS_CHECK_ARG(group.commDomain.size() <= kMaxCommDomain, ERROR_INVALID_PARAM, op,
                    ": commDomain has ", group.commDomain.size(), " characters, the limit is ",
                    kMaxCommDomain);
  if (!group.rankTableFile.empty()) {
    const std::string name = Concat(op, ": rankTableFile \"", group.rankTableFile, "\"");
    COLLOPS_RETURN_IF_ERROR(rank_table::CheckTableFile(group.rankTableFile, name));
  }
  if (group.rankSize == 0) return Ok();  // ranks are checked against the communicator
  if (group.rank != -1) COLLOPS_RETURN_IF_ERROR(CheckRank(op, group.rank, group.rankSize, ""));
  return CheckRankRoot(op, group.rankRoot, group.rankSize);
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

ReduceOp ReduceOpOf(const std::string& name) {
  ReduceOp op = ReduceOp::kSum;
  static_cast<void>(ParseReduceOp(name.c_str(), &op));
  return op;
}

Status CheckAtbPair(const char* operation, const std::string& backend, ReduceOp op, DType dtype) {
  const bool is_short = dtype == DType::kInt16 || dtype == DType::kBFloat16;
  COLLOPS_CHECK_ARG(backend != "hccl" || op != ReduceOp::kProd || !is_short,
                    ERROR_INVALID_TENSOR_DTYPE, operation, ": backend \"hccl\" has no prod of ",
                    Name(dtype), ": convert x to float32 or int32");
  COLLOPS_CHECK_ARG(
      backend != "lccl" || dtype != DType::kInt64, ERROR_INVALID_TENSOR_DTYPE, operation,
      ": backend \"lccl\" does not reduce int64: convert x to int32, or use \"hccl\"");
  return Ok();
}

}  // namespace collops
