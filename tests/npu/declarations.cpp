// Holds what ops/comm/backends/hccl/library/api.h declares against CANN's own headers. Only
// compiled: a difference is an error of the compiler.
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "acl/acl_rt.h"
#include "comm/backends/hccl/library/api.h"
#include "core/dtype.h"
#include "hccl/hccl.h"

namespace {

using namespace collops::hccl;  // every name of ours below is from there

// How a type travels in a call: enumerations by their four bytes, pointers to the same by that.
template <typename Type>
struct Plain {
  using type = std::conditional_t<std::is_enum_v<Type>, std::tuple<int32_t>, std::tuple<Type>>;
};
template <typename Target>
struct Plain<Target*> {
  using type = std::tuple<typename Plain<Target>::type, int>;
};
template <>
struct Plain<RootInfo> {
  using type = std::tuple<HcclRootInfo>;
};
template <>
struct Plain<const RootInfo> {
  using type = std::tuple<const HcclRootInfo>;
};

template <typename Function>
struct Signature;
template <typename Result, typename... Arguments>
struct Signature<Result (*)(Arguments...)> {
  using type = std::tuple<typename Plain<Result>::type, typename Plain<Arguments>::type...>;
};

template <typename Ours, typename Theirs>
constexpr bool kSame =
    std::is_same_v<typename Signature<Ours>::type, typename Signature<Theirs>::type>;

static_assert(kSame<decltype(Api::get_root_info), decltype(&HcclGetRootInfo)>);
static_assert(kSame<decltype(Api::comm_init_root_info), decltype(&HcclCommInitRootInfo)>);
static_assert(kSame<decltype(Api::comm_destroy), decltype(&HcclCommDestroy)>);
static_assert(kSame<decltype(Api::get_rank_size), decltype(&HcclGetRankSize)>);
static_assert(kSame<decltype(Api::get_rank_id), decltype(&HcclGetRankId)>);
static_assert(kSame<decltype(Api::get_comm_name), decltype(&HcclGetCommName)>);
static_assert(kSame<decltype(Api::get_comm_async_error), decltype(&HcclGetCommAsyncError)>);
static_assert(kSame<decltype(Api::all_gather_v), decltype(&HcclAllGatherV)>);
static_assert(kSame<decltype(Api::reduce_scatter_v), decltype(&HcclReduceScatterV)>);
static_assert(kSame<decltype(Api::get_device), decltype(&aclrtGetDevice)>);
static_assert(kSame<decltype(Api::set_device), decltype(&aclrtSetDevice)>);
static_assert(kSame<decltype(Api::memset_async), decltype(&aclrtMemsetAsync)>);
static_assert(kSame<decltype(Api::create_event), decltype(&aclrtCreateEvent)>);
static_assert(kSame<decltype(Api::destroy_event), decltype(&aclrtDestroyEvent)>);
static_assert(kSame<decltype(Api::record_event), decltype(&aclrtRecordEvent)>);
static_assert(kSame<decltype(Api::query_event_status), decltype(&aclrtQueryEventStatus)>);
static_assert(kSame<decltype(Api::get_recent_error), decltype(&aclGetRecentErrMsg)>);
static_assert(kSame<decltype(Api::capture_get_info), decltype(&aclmdlRICaptureGetInfo)>);
static_assert(kSame<decltype(Api::on_graph_destroyed), decltype(&aclmdlRIDestroyRegisterCallback)>);
// The comparison can fail.
static_assert(!kSame<decltype(Api::record_event), decltype(&aclrtDestroyEvent)>);
static_assert(!kSame<decltype(Api::all_gather_v), decltype(&HcclReduceScatterV)>);

static_assert(sizeof(HcclResult) == sizeof(int32_t) && sizeof(HcclDataType) == sizeof(int32_t) &&
              sizeof(HcclReduceOp) == sizeof(int32_t) &&
              sizeof(aclrtEventRecordedStatus) == sizeof(int32_t) &&
              sizeof(aclmdlRICaptureStatus) == sizeof(int32_t));
static_assert(sizeof(RootInfo) == sizeof(HcclRootInfo));
static_assert(kRootInfoBytes == HCCL_ROOT_INFO_BYTES);
static_assert(kCommNameBytes == COMM_NAME_MAX_LENGTH);
static_assert(std::is_same_v<Comm, HcclComm> && std::is_same_v<Stream, aclrtStream> &&
              std::is_same_v<Event, aclrtEvent> && std::is_same_v<AclError, aclError> &&
              std::is_same_v<Graph, aclmdlRI> && std::is_same_v<Callback, aclrtCallback>);

template <typename Ours, typename Theirs>
constexpr bool Equal(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}

static_assert(Equal(Result::kSuccess, HCCL_SUCCESS));
static_assert(Equal(Result::kParameter, HCCL_E_PARA));
static_assert(Equal(Result::kPointer, HCCL_E_PTR));
static_assert(Equal(Result::kMemory, HCCL_E_MEMORY));
static_assert(Equal(Result::kInternal, HCCL_E_INTERNAL));
static_assert(Equal(Result::kNotSupport, HCCL_E_NOT_SUPPORT));
static_assert(Equal(Result::kNotFound, HCCL_E_NOT_FOUND));
static_assert(Equal(Result::kUnavailable, HCCL_E_UNAVAIL));
static_assert(Equal(Result::kSyscall, HCCL_E_SYSCALL));
static_assert(Equal(Result::kTimeout, HCCL_E_TIMEOUT));
static_assert(Equal(Result::kOpenFile, HCCL_E_OPEN_FILE_FAILURE));
static_assert(Equal(Result::kTcpConnect, HCCL_E_TCP_CONNECT));
static_assert(Equal(Result::kRoceConnect, HCCL_E_ROCE_CONNECT));
static_assert(Equal(Result::kTcpTransfer, HCCL_E_TCP_TRANSFER));
static_assert(Equal(Result::kRoceTransfer, HCCL_E_ROCE_TRANSFER));
static_assert(Equal(Result::kRuntime, HCCL_E_RUNTIME));
static_assert(Equal(Result::kDriver, HCCL_E_DRV));
static_assert(Equal(Result::kProfiling, HCCL_E_PROFILING));
static_assert(Equal(Result::kCce, HCCL_E_CCE));
static_assert(Equal(Result::kNetwork, HCCL_E_NETWORK));
static_assert(Equal(Result::kAgain, HCCL_E_AGAIN));
static_assert(Equal(Result::kRemote, HCCL_E_REMOTE));
static_assert(Equal(Result::kSuspending, HCCL_E_SUSPENDING));
static_assert(Equal(Result::kOpRetryFail, HCCL_E_OPRETRY_FAIL));
static_assert(Equal(Result::kOutOfMemory, HCCL_E_OOM));

static_assert(Equal(DataType::kInt8, HCCL_DATA_TYPE_INT8));
static_assert(Equal(DataType::kInt16, HCCL_DATA_TYPE_INT16));
static_assert(Equal(DataType::kInt32, HCCL_DATA_TYPE_INT32));
static_assert(Equal(DataType::kFloat16, HCCL_DATA_TYPE_FP16));
static_assert(Equal(DataType::kFloat32, HCCL_DATA_TYPE_FP32));
static_assert(Equal(DataType::kBFloat16, HCCL_DATA_TYPE_BFP16));

static_assert(Equal(Reduction::kSum, HCCL_REDUCE_SUM));
static_assert(Equal(Reduction::kProd, HCCL_REDUCE_PROD));
static_assert(Equal(Reduction::kMax, HCCL_REDUCE_MAX));
static_assert(Equal(Reduction::kMin, HCCL_REDUCE_MIN));

static_assert(Equal(EventStatus::kNotReady, ACL_EVENT_RECORDED_STATUS_NOT_READY));
static_assert(Equal(EventStatus::kComplete, ACL_EVENT_RECORDED_STATUS_COMPLETE));
static_assert(Equal(CaptureStatus::kNone, ACL_MODEL_RI_CAPTURE_STATUS_NONE));
static_assert(Equal(CaptureStatus::kActive, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE));
static_assert(Equal(CaptureStatus::kInvalidated, ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED));
static_assert(Equal(kAclBadAlloc, ACL_ERROR_BAD_ALLOC));
static_assert(Equal(kAclNotSupported, ACL_ERROR_RT_FEATURE_NOT_SUPPORT));

// The core's element types carry aclDataType's numbers.
using collops::DType;
static_assert(Equal(DType::kUndefined, ACL_DT_UNDEFINED));
static_assert(Equal(DType::kFloat32, ACL_FLOAT));
static_assert(Equal(DType::kFloat16, ACL_FLOAT16));
static_assert(Equal(DType::kInt8, ACL_INT8));
static_assert(Equal(DType::kInt32, ACL_INT32));
static_assert(Equal(DType::kUInt8, ACL_UINT8));
static_assert(Equal(DType::kInt16, ACL_INT16));
static_assert(Equal(DType::kUInt16, ACL_UINT16));
static_assert(Equal(DType::kUInt32, ACL_UINT32));
static_assert(Equal(DType::kInt64, ACL_INT64));
static_assert(Equal(DType::kUInt64, ACL_UINT64));
static_assert(Equal(DType::kFloat64, ACL_DOUBLE));
static_assert(Equal(DType::kBool, ACL_BOOL));
static_assert(Equal(DType::kComplex64, ACL_COMPLEX64));
static_assert(Equal(DType::kComplex128, ACL_COMPLEX128));
static_assert(Equal(DType::kBFloat16, ACL_BF16));

}  // namespace
