#include "collops/comm/backends/hccl/library.h"

#include <atomic>
#include <cstring>
#include <string>

#include "collops/core/process/shared_library.h"
#include "collops/core/status.h"
#include "collops/core/trace/log.h"

namespace collops::hccl {
namespace {

constexpr const char* kUser = "backend hccl";
constexpr const char* kHccl = "libhccl.so";
constexpr const char* kAscendCl = "libascendcl.so";

struct Loaded {
  Api api = {};
  Status status;

  Loaded() {
    SharedLibrary hccl(kUser, kHccl);
    FindHccl(&hccl);
    SharedLibrary acl(kUser, kAscendCl);
    FindAcl(&acl);
    status = hccl.status().ok() ? acl.status() : hccl.status();
  }

  void FindHccl(SharedLibrary* library) {
    library->Find("HcclGetRootInfo", &api.get_root_info);
    library->Find("HcclCommInitRootInfo", &api.comm_init_root_info);
    library->Find("HcclCommDestroy", &api.comm_destroy);
    library->Find("HcclGetRankSize", &api.get_rank_size);
    library->Find("HcclGetRankId", &api.get_rank_id);
    library->Find("HcclGetCommName", &api.get_comm_name);
    library->Find("HcclGetCommAsyncError", &api.get_comm_async_error);
    library->FindIfThere("HcclCommInitRootInfoConfig", &api.comm_init_root_info_config);
    library->FindIfThere("HcclCommInitClusterInfo", &api.comm_init_cluster_info);
    library->FindIfThere("HcclCommInitClusterInfoConfig", &api.comm_init_cluster_info_config);
    library->FindIfThere("HcclCreateSubCommConfig", &api.create_sub_comm);
    library->FindIfThere("HcclAllGatherV", &api.all_gather_v);
    library->FindIfThere("HcclReduceScatterV", &api.reduce_scatter_v);
    library->Find("HcclAllGather", &api.all_gather);
    library->Find("HcclReduceScatter", &api.reduce_scatter);
    library->Find("HcclAllReduce", &api.all_reduce);
    library->Find("HcclReduce", &api.reduce);
    library->Find("HcclBroadcast", &api.broadcast);
    library->Find("HcclAlltoAllV", &api.all_to_all_v);
    library->Find("HcclSend", &api.send);
    library->Find("HcclRecv", &api.recv);
    library->Find("HcclBatchSendRecv", &api.batch_send_recv);
    library->Find("HcclBarrier", &api.barrier);
  }

  void FindAcl(SharedLibrary* library) {
    library->Find("aclrtGetDevice", &api.get_device);
    library->Find("aclrtSetDevice", &api.set_device);
    library->Find("aclrtMemsetAsync", &api.memset_async);
    library->Find("aclrtMemcpyAsync", &api.memcpy_async);
    library->Find("aclrtMalloc", &api.malloc);
    library->Find("aclrtFree", &api.free);
    library->Find("aclrtGetSocName", &api.get_soc_name);
    library->Find("aclrtCreateStream", &api.create_stream);
    library->Find("aclrtDestroyStream", &api.destroy_stream);
    library->Find("aclrtSynchronizeStreamWithTimeout", &api.synchronize_stream);
    library->Find("aclrtStreamWaitEvent", &api.stream_wait_event);
    library->Find("aclrtCreateEvent", &api.create_event);
    library->FindIfThere("aclrtCreateEventExWithFlag", &api.create_event_ex);
    library->Find("aclrtDestroyEvent", &api.destroy_event);
    library->Find("aclrtRecordEvent", &api.record_event);
    library->Find("aclrtQueryEventStatus", &api.query_event_status);
    library->Find("aclGetRecentErrMsg", &api.get_recent_error);
    library->FindIfThere("aclmdlRICaptureGetInfo", &api.capture_get_info);
    library->FindIfThere("aclmdlRICaptureThreadExchangeMode", &api.exchange_capture_mode);
    library->FindIfThere("aclmdlRIDestroyRegisterCallback", &api.on_graph_destroyed);
  }
};

}  // namespace

Status Load(const Api** api) {
  static const Loaded* const loaded = new Loaded;
  *api = &loaded->api;
  return loaded->status;
}

namespace {

// ATB's mapping, with codes of this library where they are more specific than ERROR_HCCL_FAIL.
ErrorCode CodeOf(Result result) {
  if (result == Result::kSuccess) return NO_ERROR;
  if (result == Result::kParameter) return ERROR_INVALID_PARAM;
  if (result == Result::kMemory || result == Result::kOutOfMemory) {
    return ERROR_OUT_OF_DEVICE_MEMORY;
  }
  if (result == Result::kNotSupport) return ERROR_UNSUPPORTED;
  if (result == Result::kTimeout) return ERROR_TIMEOUT;
  if (result == Result::kRemote) return ERROR_PEER_LOST;
  return ERROR_HCCL_FAIL;
}

// CANN stores the text of the last error and returns it once.
std::string Explanation(const Api& api) {
  const char* const text = api.get_recent_error();
  return text == nullptr || *text == '\0' ? "" : Concat(": ", text);
}

// HCCL's errors about ports do not name the variables that choose them.
const char* AdviceOn(Result result, const std::string& said) {
  if (result != Result::kTcpConnect && said.find("EJ0003") == std::string::npos) return "";
  return "; HCCL_IF_BASE_PORT chooses the ports on the host (60000 to 60031), "
         "HCCL_NPU_SOCKET_PORT_RANGE those on an NPU (16666), and HCCL_SOCKET_IFNAME the network "
         "device";
}

}  // namespace

const char* Name(Result result) {
  static constexpr const char* kNames[] = {
      "HCCL_SUCCESS",
      "HCCL_E_PARA",
      "HCCL_E_PTR",
      "HCCL_E_MEMORY",
      "HCCL_E_INTERNAL",
      "HCCL_E_NOT_SUPPORT",
      "HCCL_E_NOT_FOUND",
      "HCCL_E_UNAVAIL",
      "HCCL_E_SYSCALL",
      "HCCL_E_TIMEOUT",
      "HCCL_E_OPEN_FILE_FAILURE",
      "HCCL_E_TCP_CONNECT",
      "HCCL_E_ROCE_CONNECT",
      "HCCL_E_TCP_TRANSFER",
      "HCCL_E_ROCE_TRANSFER",
      "HCCL_E_RUNTIME",
      "HCCL_E_DRV",
      "HCCL_E_PROFILING",
      "HCCL_E_CCE",
      "HCCL_E_NETWORK",
      "HCCL_E_AGAIN",
      "HCCL_E_REMOTE",
      "HCCL_E_SUSPENDING",
      "HCCL_E_OPRETRY_FAIL",
      "HCCL_E_OOM",
  };
  const auto number = static_cast<int32_t>(result);
  const bool known = number >= 0 && number <= static_cast<int32_t>(Result::kOutOfMemory);
  return known ? kNames[number] : "an unknown HcclResult";
}

Status ToStatus(const Api& api, Result result, const char* call, std::string* said) {
  if (result == Result::kSuccess) return Ok();
  const std::string text = Explanation(api);
  if (said != nullptr) *said = text;
  return Error(CodeOf(result), call, " returned ", static_cast<int32_t>(result), " (", Name(result),
               ")", text, AdviceOn(result, text));
}

Status ToStatus(const Api& api, AclError error, const char* call) {
  if (error == 0) return Ok();
  const ErrorCode code = error == kAclBadAlloc ? ERROR_OUT_OF_DEVICE_MEMORY : ERROR_RT_FAIL;
  return Error(code, call, " returned aclError ", error, Explanation(api));
}

namespace {

struct Row {
  DType dtype;
  DataType type;
  bool gathers;     // HcclAllGatherV documents it
  bool reduces_v;   // HcclReduceScatterV documents it
  bool reduces;     // HcclAllReduce, HcclReduceScatter and HcclReduce document it
  bool multiplies;  // with the reduction prod
};

// As documented for Atlas A2. The other calls that move data document all of these types.
constexpr Row kTypes[] = {
    {DType::kInt8, DataType::kInt8, true, true, true, true},
    {DType::kInt16, DataType::kInt16, false, true, true, false},
    {DType::kInt32, DataType::kInt32, true, true, true, true},
    {DType::kInt64, DataType::kInt64, false, false, true, true},
    {DType::kUInt8, DataType::kUInt8, false, false, false, false},
    {DType::kFloat16, DataType::kFloat16, true, true, true, true},
    {DType::kFloat32, DataType::kFloat32, true, true, true, true},
    {DType::kFloat64, DataType::kFloat64, false, false, false, false},
    {DType::kBFloat16, DataType::kBFloat16, true, true, true, false},
};

const Row* Find(DType dtype) {
  for (const Row& row : kTypes) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

bool FindOperation(ReduceOp op, Reduction* reduction) {
  switch (op) {
    case ReduceOp::kSum:
      *reduction = Reduction::kSum;
      return true;
    case ReduceOp::kMax:
      *reduction = Reduction::kMax;
      return true;
    case ReduceOp::kMin:
      *reduction = Reduction::kMin;
      return true;
    case ReduceOp::kProd:
      *reduction = Reduction::kProd;
      return true;
    case ReduceOp::kAvg:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  return false;
}

}  // namespace

Carriage CarriageOf(DType dtype, bool all_gather_v) {
  const Row* row = Find(dtype);
  if (row != nullptr && (row->gathers || !all_gather_v)) return {row->type, 1};
  return {DataType::kInt8, SizeOf(dtype)};
}

Status FindReductionV(DType dtype, ReduceOp op, DataType* type, Reduction* reduction) {
  const Row* row = Find(dtype);
  COLLOPS_CHECK_ARG(
      row != nullptr && row->reduces_v, ERROR_UNSUPPORTED, "backend hccl: HCCL does not reduce ",
      collops::Name(dtype),
      " to parts of uneven size; it takes int8, int16, int32, float16, float32 and bfloat16");
  *type = row->type;
  const bool known = FindOperation(op, reduction) && op != ReduceOp::kProd;
  COLLOPS_CHECK_ARG(known, ERROR_UNSUPPORTED, "backend hccl: HCCL does not scatter the ",
                    collops::Name(op), " in parts of uneven size; it takes sum, max and min");
  return Ok();
}

Status FindReduction(DType dtype, ReduceOp op, DataType* type, Reduction* reduction) {
  const Row* row = Find(dtype);
  COLLOPS_CHECK_ARG(row != nullptr && row->reduces, ERROR_UNSUPPORTED,
                    "backend hccl: HCCL does not reduce ", collops::Name(dtype),
                    "; it takes int8, int16, int32, int64, float16, float32 and bfloat16");
  *type = row->type;
  COLLOPS_CHECK_ARG(FindOperation(op, reduction), ERROR_UNSUPPORTED, "backend hccl: HCCL has no ",
                    collops::Name(op), "; it takes sum, prod, max and min");
  COLLOPS_CHECK_ARG(op != ReduceOp::kProd || row->multiplies, ERROR_UNSUPPORTED,
                    "backend hccl: HCCL does not take the prod of ", collops::Name(dtype));
  return Ok();
}

namespace {

bool StartsWith(const std::string& text, const char* begin) {
  return text.compare(0, std::strlen(begin), begin) == 0;
}

// "Ascend910B" with nothing behind it is of the first generation, too; of Atlas A2 are Ascend910B1,
// Ascend910B2C and so on.
bool IsFirst910(const std::string& soc) {
  const bool is_a2 = StartsWith(soc, "Ascend910B") && soc != "Ascend910B";
  return StartsWith(soc, "Ascend910") && !is_a2 && !StartsWith(soc, "Ascend910_");
}

// By HCCL's documents: Ascend910 of the first generation and Ascend310 have neither call; Atlas A3
// (Ascend910_93) has both inside one server. A name that is not known is taken for a later SoC that
// has them; what a topology lacks HCCL says in the first call.
void LimitBySoc(const std::string& soc, bool several_servers, Abilities* abilities) {
  const bool first_310 = StartsWith(soc, "Ascend310") && !StartsWith(soc, "Ascend310P");
  const bool a3 = StartsWith(soc, "Ascend910_93");
  if (IsFirst910(soc) || first_310 || (a3 && several_servers)) {
    abilities->all_gather_v = abilities->reduce_scatter_v = false;
    abilities->why_not = Concat("HCCL does not have it on ", soc, a3 ? " on several servers" : "");
  }
}

}  // namespace

Status CheckReductionV(const Api& api, ReduceOp op) {
  const char* const name = api.get_soc_name();
  const std::string soc = name == nullptr ? "" : name;
  COLLOPS_CHECK_ARG(op == ReduceOp::kSum || !StartsWith(soc, "Ascend310P"), ERROR_UNSUPPORTED,
                    "backend hccl: HCCL scatters no ", collops::Name(op),
                    " in parts of uneven size on ", soc, "; it takes sum");
  return Ok();
}

Abilities AbilitiesOf(const Api& api, bool several_servers) {
  Abilities abilities;
  const char* const soc = api.get_soc_name();
  LimitBySoc(soc == nullptr ? "" : soc, several_servers, &abilities);
  if (api.all_gather_v == nullptr || api.reduce_scatter_v == nullptr) {
    abilities.why_not = "this libhccl.so does not have it";
  }
  abilities.all_gather_v &= api.all_gather_v != nullptr;
  abilities.reduce_scatter_v &= api.reduce_scatter_v != nullptr;
  return abilities;
}

void WarnOfReplacement(const Abilities& abilities) {
  if (abilities.all_gather_v && abilities.reduce_scatter_v) return;
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  const bool both = !abilities.all_gather_v && !abilities.reduce_scatter_v;
  const char* const what = abilities.all_gather_v       ? "HcclReduceScatterV"
                           : abilities.reduce_scatter_v ? "HcclAllGatherV"
                                                        : "HcclAllGatherV and HcclReduceScatterV";
  Log(LogLevel::kWarning,
      Concat("collops: warning: ", what, both ? " are" : " is",
             " replaced by a broadcast or a reduction per rank, which is slower: ",
             abilities.why_not));
}

}  // namespace collops::hccl
