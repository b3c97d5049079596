// Holds what ops/collops/comm/backends/ucx/engine/api.h declares against UCX's own headers. Only
// compiled: a difference is an error of the compiler.
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collops/comm/backends/ucx/engine/api.h"
#include "ucp/api/ucp.h"

namespace {

using namespace collops::ucx;  // every name of ours below is from there

// UCX's type for one of ours.
template <typename Type>
struct Map {
  using type = Type;
};
template <typename Target>
struct Map<Target*> {
  using type = typename Map<Target>::type*;
};
template <typename Target>
struct Map<const Target> {
  using type = const typename Map<Target>::type;
};
template <typename Result, typename... Arguments>
struct Map<Result(Arguments...)> {
  using type = typename Map<Result>::type(typename Map<Arguments>::type...);
};
template <>
struct Map<ContextObject> {
  using type = ucp_context;
};
template <>
struct Map<ConfigObject> {
  using type = ucp_config_t;
};
template <>
struct Map<WorkerObject> {
  using type = ucp_worker;
};
template <>
struct Map<EndpointObject> {
  using type = ucp_ep;
};
template <>
struct Map<ConnRequestObject> {
  using type = ucp_conn_request;
};
template <>
struct Map<AddressObject> {
  using type = ucp_address_t;
};
template <>
struct Map<collops::ucx::Result> {
  using type = ucs_status_t;
};
template <>
struct Map<ThreadMode> {
  using type = ucs_thread_mode_t;
};
template <>
struct Map<ErrorMode> {
  using type = ucp_err_handling_mode_t;
};
template <>
struct Map<MemoryType> {
  using type = ucs_memory_type_t;
};
template <>
struct Map<ContextParams> {
  using type = ucp_params_t;
};
template <>
struct Map<WorkerParams> {
  using type = ucp_worker_params_t;
};
template <>
struct Map<EndpointParams> {
  using type = ucp_ep_params_t;
};
template <>
struct Map<RequestParam> {
  using type = ucp_request_param_t;
};
template <>
struct Map<ReceiveInfo> {
  using type = ucp_tag_recv_info_t;
};
template <>
struct Map<ErrorHandler> {
  using type = ucp_err_handler_t;
};
template <>
struct Map<SocketAddress> {
  using type = ucs_sock_addr_t;
};
template <>
struct Map<CpuSet> {
  using type = ucs_cpu_set_t;
};

template <typename Ours, typename Theirs>
constexpr bool kSame = std::is_same_v<typename Map<Ours>::type, Theirs>;

static_assert(kSame<decltype(Api::get_version), decltype(&ucp_get_version)>);
static_assert(kSame<decltype(Api::get_version_string), decltype(&ucp_get_version_string)>);
static_assert(kSame<decltype(Api::status_string), decltype(&ucs_status_string)>);
static_assert(kSame<decltype(Api::config_read), decltype(&ucp_config_read)>);
static_assert(kSame<decltype(Api::config_modify), decltype(&ucp_config_modify)>);
static_assert(kSame<decltype(Api::config_release), decltype(&ucp_config_release)>);
static_assert(kSame<decltype(Api::init_version), decltype(&ucp_init_version)>);
static_assert(kSame<decltype(Api::context_print_info), decltype(&ucp_context_print_info)>);
static_assert(kSame<decltype(Api::cleanup), decltype(&ucp_cleanup)>);
static_assert(kSame<decltype(Api::worker_create), decltype(&ucp_worker_create)>);
static_assert(kSame<decltype(Api::worker_destroy), decltype(&ucp_worker_destroy)>);
static_assert(kSame<decltype(Api::worker_get_address), decltype(&ucp_worker_get_address)>);
static_assert(kSame<decltype(Api::worker_release_address), decltype(&ucp_worker_release_address)>);
static_assert(kSame<decltype(Api::worker_progress), decltype(&ucp_worker_progress)>);
static_assert(kSame<decltype(Api::worker_get_efd), decltype(&ucp_worker_get_efd)>);
static_assert(kSame<decltype(Api::worker_arm), decltype(&ucp_worker_arm)>);
static_assert(kSame<decltype(Api::endpoint_create), decltype(&ucp_ep_create)>);
static_assert(kSame<decltype(Api::endpoint_flush), decltype(&ucp_ep_flush_nbx)>);
static_assert(kSame<decltype(Api::endpoint_close), decltype(&ucp_ep_close_nbx)>);
static_assert(kSame<decltype(Api::tag_send), decltype(&ucp_tag_send_nbx)>);
static_assert(kSame<decltype(Api::tag_receive), decltype(&ucp_tag_recv_nbx)>);
static_assert(kSame<decltype(Api::receive_test), decltype(&ucp_tag_recv_request_test)>);
static_assert(kSame<decltype(Api::request_check_status), decltype(&ucp_request_check_status)>);
static_assert(kSame<decltype(Api::request_cancel), decltype(&ucp_request_cancel)>);
static_assert(kSame<decltype(Api::request_free), decltype(&ucp_request_free)>);
// The comparison can fail.
static_assert(!kSame<decltype(Api::request_free), decltype(&ucp_cleanup)>);
static_assert(!kSame<decltype(Api::tag_send), decltype(&ucp_tag_recv_nbx)>);

// Pointers to functions are compared by their size: their arguments are the callers' own types.
template <typename Ours, typename Theirs>
constexpr bool IsField(size_t ours_at, size_t theirs_at) {
  constexpr bool kPointers = std::is_pointer_v<Ours> && sizeof(Ours) == sizeof(Theirs);
  return ours_at == theirs_at &&
         (kSame<Ours, Theirs> || (kPointers && !std::is_integral_v<Theirs>));
}
#define SAME_FIELD(Ours, ours, Theirs, theirs)                                                \
  static_assert(IsField<decltype(Ours::ours), decltype(Theirs::theirs)>(offsetof(Ours, ours), \
                                                                        offsetof(Theirs, theirs)))

SAME_FIELD(ContextParams, field_mask, ucp_params_t, field_mask);
SAME_FIELD(ContextParams, features, ucp_params_t, features);
SAME_FIELD(ContextParams, request_size, ucp_params_t, request_size);
SAME_FIELD(ContextParams, request_init, ucp_params_t, request_init);
SAME_FIELD(ContextParams, request_cleanup, ucp_params_t, request_cleanup);
SAME_FIELD(ContextParams, tag_sender_mask, ucp_params_t, tag_sender_mask);
SAME_FIELD(ContextParams, mt_workers_shared, ucp_params_t, mt_workers_shared);
SAME_FIELD(ContextParams, estimated_num_eps, ucp_params_t, estimated_num_eps);
SAME_FIELD(ContextParams, estimated_num_ppn, ucp_params_t, estimated_num_ppn);
SAME_FIELD(ContextParams, name, ucp_params_t, name);
static_assert(sizeof(ContextParams) <= sizeof(ucp_params_t));

SAME_FIELD(WorkerParams, field_mask, ucp_worker_params_t, field_mask);
SAME_FIELD(WorkerParams, thread_mode, ucp_worker_params_t, thread_mode);
SAME_FIELD(WorkerParams, cpu_mask, ucp_worker_params_t, cpu_mask);
SAME_FIELD(WorkerParams, events, ucp_worker_params_t, events);
SAME_FIELD(WorkerParams, user_data, ucp_worker_params_t, user_data);
SAME_FIELD(WorkerParams, event_fd, ucp_worker_params_t, event_fd);
SAME_FIELD(WorkerParams, flags, ucp_worker_params_t, flags);
SAME_FIELD(WorkerParams, name, ucp_worker_params_t, name);
SAME_FIELD(WorkerParams, am_alignment, ucp_worker_params_t, am_alignment);
SAME_FIELD(WorkerParams, client_id, ucp_worker_params_t, client_id);
static_assert(sizeof(WorkerParams) <= sizeof(ucp_worker_params_t));
static_assert(sizeof(CpuSet) == sizeof(ucs_cpu_set_t));

SAME_FIELD(ErrorHandler, function, ucp_err_handler_t, cb);
SAME_FIELD(ErrorHandler, user_data, ucp_err_handler_t, arg);
static_assert(kSame<decltype(ErrorHandler::function), ucp_err_handler_cb_t>);
static_assert(sizeof(ErrorHandler) == sizeof(ucp_err_handler_t));
static_assert(offsetof(SocketAddress, address) == offsetof(ucs_sock_addr_t, addr));
static_assert(offsetof(SocketAddress, bytes) == offsetof(ucs_sock_addr_t, addrlen));
static_assert(std::is_same_v<decltype(SocketAddress::bytes), socklen_t>);
static_assert(sizeof(SocketAddress) == sizeof(ucs_sock_addr_t));

SAME_FIELD(EndpointParams, field_mask, ucp_ep_params_t, field_mask);
SAME_FIELD(EndpointParams, address, ucp_ep_params_t, address);
SAME_FIELD(EndpointParams, error_mode, ucp_ep_params_t, err_mode);
SAME_FIELD(EndpointParams, error_handler, ucp_ep_params_t, err_handler);
SAME_FIELD(EndpointParams, user_data, ucp_ep_params_t, user_data);
SAME_FIELD(EndpointParams, flags, ucp_ep_params_t, flags);
SAME_FIELD(EndpointParams, remote, ucp_ep_params_t, sockaddr);
SAME_FIELD(EndpointParams, conn_request, ucp_ep_params_t, conn_request);
SAME_FIELD(EndpointParams, name, ucp_ep_params_t, name);
SAME_FIELD(EndpointParams, local, ucp_ep_params_t, local_sockaddr);
static_assert(sizeof(EndpointParams) <= sizeof(ucp_ep_params_t));

SAME_FIELD(ReceiveInfo, sender_tag, ucp_tag_recv_info_t, sender_tag);
SAME_FIELD(ReceiveInfo, length, ucp_tag_recv_info_t, length);
static_assert(sizeof(ReceiveInfo) == sizeof(ucp_tag_recv_info_t));

SAME_FIELD(RequestParam, op_attr_mask, ucp_request_param_t, op_attr_mask);
SAME_FIELD(RequestParam, flags, ucp_request_param_t, flags);
SAME_FIELD(RequestParam, request, ucp_request_param_t, request);
SAME_FIELD(RequestParam, callback, ucp_request_param_t, cb.send);
static_assert(kSame<decltype(RequestParam::callback), ucp_send_nbx_callback_t>);
SAME_FIELD(RequestParam, datatype, ucp_request_param_t, datatype);
SAME_FIELD(RequestParam, user_data, ucp_request_param_t, user_data);
SAME_FIELD(RequestParam, reply_buffer, ucp_request_param_t, reply_buffer);
SAME_FIELD(RequestParam, memory_type, ucp_request_param_t, memory_type);
SAME_FIELD(RequestParam, receive_info, ucp_request_param_t, recv_info.tag_info);
static_assert(sizeof(RequestParam) <= sizeof(ucp_request_param_t));

template <typename Ours, typename Theirs>
constexpr bool Equal(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}

static_assert(sizeof(collops::ucx::Result) == sizeof(ucs_status_t));
static_assert(sizeof(ThreadMode) == sizeof(ucs_thread_mode_t));
static_assert(sizeof(ErrorMode) == sizeof(ucp_err_handling_mode_t));
static_assert(sizeof(MemoryType) == sizeof(ucs_memory_type_t));
static_assert(Equal(collops::ucx::Result::kOk, UCS_OK));
static_assert(Equal(collops::ucx::Result::kInProgress, UCS_INPROGRESS));
static_assert(Equal(collops::ucx::Result::kInvalidParam, UCS_ERR_INVALID_PARAM));
static_assert(Equal(collops::ucx::Result::kMessageTruncated, UCS_ERR_MESSAGE_TRUNCATED));
static_assert(Equal(collops::ucx::Result::kNoDevice, UCS_ERR_NO_DEVICE));
static_assert(Equal(collops::ucx::Result::kBusy, UCS_ERR_BUSY));
static_assert(Equal(collops::ucx::Result::kCanceled, UCS_ERR_CANCELED));
static_assert(Equal(collops::ucx::Result::kConnectionReset, UCS_ERR_CONNECTION_RESET));
static_assert(Equal(collops::ucx::Result::kLast, UCS_ERR_LAST));
static_assert(Equal(ThreadMode::kSingle, UCS_THREAD_MODE_SINGLE));
static_assert(Equal(ThreadMode::kSerialized, UCS_THREAD_MODE_SERIALIZED));
static_assert(Equal(ThreadMode::kMulti, UCS_THREAD_MODE_MULTI));
static_assert(Equal(ErrorMode::kNone, UCP_ERR_HANDLING_MODE_NONE));
static_assert(Equal(ErrorMode::kPeer, UCP_ERR_HANDLING_MODE_PEER));
static_assert(Equal(MemoryType::kHost, UCS_MEMORY_TYPE_HOST));

static_assert(Equal(kParamFeatures, UCP_PARAM_FIELD_FEATURES));
static_assert(Equal(kParamEstimatedNumEps, UCP_PARAM_FIELD_ESTIMATED_NUM_EPS));
static_assert(Equal(kFeatureTag, UCP_FEATURE_TAG));
static_assert(Equal(kFeatureWakeup, UCP_FEATURE_WAKEUP));
static_assert(Equal(kWorkerThreadMode, UCP_WORKER_PARAM_FIELD_THREAD_MODE));
static_assert(Equal(kEndpointAddress, UCP_EP_PARAM_FIELD_REMOTE_ADDRESS));
static_assert(Equal(kEndpointErrorMode, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE));
static_assert(Equal(kEndpointErrorHandler, UCP_EP_PARAM_FIELD_ERR_HANDLER));
static_assert(Equal(kRequestFlags, UCP_OP_ATTR_FIELD_FLAGS));
static_assert(Equal(kRequestMemoryType, UCP_OP_ATTR_FIELD_MEMORY_TYPE));
static_assert(Equal(kRequestReceiveInfo, UCP_OP_ATTR_FIELD_RECV_INFO));
static_assert(Equal(kCloseForce, UCP_EP_CLOSE_FLAG_FORCE));

}  // namespace
