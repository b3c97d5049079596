#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

struct sockaddr;

namespace collops::ucx {

// UCX's functions and types, declared here as the releases from 1.12 on publish them; a test
// compares the declarations with the headers of a later one. UCX reads of a struct what its
// field_mask names, and its structs only grow at their end.

// Handles: each points to an object of UCX.
struct ContextObject;
struct ConfigObject;
struct WorkerObject;
struct EndpointObject;
struct ConnRequestObject;
struct AddressObject;
struct MemoryObject;
using Context = ContextObject*;
using Endpoint = EndpointObject*;

// ucs_status_t, which has one byte. UCX may return other numbers, too.
enum class Result : int8_t {
  kOk = 0,
  kInProgress = 1,
  kInvalidParam = -5,
  kUnreachable = -6,
  kMessageTruncated = -9,
  kNoDevice = -14,
  kBusy = -15,
  kCanceled = -16,
  kConnectionReset = -25,
  kLast = -100,
};

// ucs_thread_mode_t.
enum class ThreadMode : uint32_t { kSingle = 0, kSerialized = 1, kMulti = 2 };
// ucp_err_handling_mode_t.
enum class ErrorMode : uint32_t { kNone = 0, kPeer = 1 };
// ucs_memory_type_t.
enum class MemoryType : uint32_t { kHost = 0 };

// Bits of the masks.
constexpr uint64_t kParamFeatures = 1 << 0;
constexpr uint64_t kParamEstimatedNumEps = 1 << 6;
constexpr uint64_t kFeatureTag = 1 << 0;
constexpr uint64_t kFeatureWakeup = 1 << 4;
constexpr uint64_t kWorkerThreadMode = 1 << 0;
constexpr uint64_t kEndpointAddress = 1 << 0;
constexpr uint64_t kEndpointErrorMode = 1 << 1;
constexpr uint64_t kEndpointErrorHandler = 1 << 2;
constexpr uint32_t kRequestFlags = 1 << 4;
constexpr uint32_t kRequestMemoryType = 1 << 6;
constexpr uint32_t kRequestReceiveInfo = 1 << 7;
constexpr uint32_t kCloseForce = 1 << 0;

// ucp_params_t.
struct ContextParams {
  uint64_t field_mask;
  uint64_t features;
  size_t request_size;
  void (*request_init)(void* request);
  void (*request_cleanup)(void* request);
  uint64_t tag_sender_mask;
  int mt_workers_shared;
  size_t estimated_num_eps;
  size_t estimated_num_ppn;
  const char* name;
};

// ucs_cpu_set_t.
struct CpuSet {
  unsigned long bits[1024 / (8 * sizeof(unsigned long))];
};

// ucp_worker_params_t.
struct WorkerParams {
  uint64_t field_mask;
  ThreadMode thread_mode;
  CpuSet cpu_mask;
  unsigned events;
  void* user_data;
  int event_fd;
  uint64_t flags;
  const char* name;
  size_t am_alignment;
  uint64_t client_id;
};

// ucp_err_handler_t.
struct ErrorHandler {
  void (*function)(void* user_data, Endpoint endpoint, Result result);
  void* user_data;
};

// ucs_sock_addr_t.
struct SocketAddress {
  const struct sockaddr* address;
  uint32_t bytes;
};

// ucp_ep_params_t.
struct EndpointParams {
  uint64_t field_mask;
  const AddressObject* address;
  ErrorMode error_mode;
  ErrorHandler error_handler;
  void* user_data;
  unsigned flags;
  SocketAddress remote;
  ConnRequestObject* conn_request;
  const char* name;
  SocketAddress local;
};

// ucp_tag_recv_info_t.
struct ReceiveInfo {
  uint64_t sender_tag;
  size_t length;
};

// ucp_request_param_t.
struct RequestParam {
  uint32_t op_attr_mask;
  uint32_t flags;
  void* request;
  void (*callback)(void* request, Result result, void* user_data);
  uint64_t datatype;
  void* user_data;
  void* reply_buffer;
  MemoryType memory_type;
  ReceiveInfo* receive_info;
};

// UCX's functions, each looked up once in its library.
struct Api {
  void (*get_version)(unsigned* major, unsigned* minor, unsigned* release);
  const char* (*get_version_string)();
  const char* (*status_string)(Result result);
  Result (*config_read)(const char* env_prefix, const char* file, ConfigObject** config);
  Result (*config_modify)(ConfigObject* config, const char* name, const char* value);
  void (*config_release)(ConfigObject* config);
  Result (*init_version)(unsigned major, unsigned minor, const ContextParams* params,
                         const ConfigObject* config, Context* context);
  void (*context_print_info)(Context context, FILE* stream);
  void (*cleanup)(Context context);
  Result (*worker_create)(Context context, const WorkerParams* params, WorkerObject** worker);
  void (*worker_destroy)(WorkerObject* worker);
  Result (*worker_get_address)(WorkerObject* worker, AddressObject** address, size_t* bytes);
  void (*worker_release_address)(WorkerObject* worker, AddressObject* address);
  unsigned (*worker_progress)(WorkerObject* worker);
  Result (*worker_get_efd)(WorkerObject* worker, int* descriptor);
  Result (*worker_arm)(WorkerObject* worker);
  Result (*endpoint_create)(WorkerObject* worker, const EndpointParams* params, Endpoint* endpoint);
  void* (*endpoint_flush)(Endpoint endpoint, const RequestParam* param);
  void* (*endpoint_close)(Endpoint endpoint, const RequestParam* param);
  void* (*tag_send)(Endpoint endpoint, const void* data, size_t bytes, uint64_t tag,
                    const RequestParam* param);
  void* (*tag_receive)(WorkerObject* worker, void* data, size_t bytes, uint64_t tag,
                       uint64_t tag_mask, const RequestParam* param);
  Result (*receive_test)(void* request, ReceiveInfo* info);
  Result (*request_check_status)(void* request);
  void (*request_cancel)(WorkerObject* worker, void* request);
  void (*request_free)(void* request);
};

// A function that starts something returns null if it is done, an error, or a request.
inline bool IsRequest(const void* started) {
  const auto number = reinterpret_cast<uintptr_t>(started);
  return number != 0 && number < static_cast<uintptr_t>(static_cast<intptr_t>(Result::kLast));
}
// Of what is not a request: kOk, or the error.
inline Result ResultOf(const void* started) {
  return static_cast<Result>(reinterpret_cast<intptr_t>(started));
}

}  // namespace collops::ucx
