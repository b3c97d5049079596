#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops::hccl {

// CANN's functions and types, declared here from hccl/hccl.h and acl/acl_rt.h as published; a test
// compares the declarations with those headers. CANN's C enumerations have four bytes.

using Comm = void*;
using Stream = void*;
using Event = void*;
using Graph = void*;  // aclmdlRI

constexpr size_t kRootInfoBytes = 4108;
constexpr size_t kCommNameBytes = 128;

// Made by rank 0, and passed to every rank: HCCL connects the ranks that have the same one.
struct RootInfo {
  char internal[kRootInfoBytes];
};

// HcclResult. HCCL may return other numbers, too.
enum class Result : int32_t {
  kSuccess = 0,
  kParameter = 1,
  kPointer = 2,
  kMemory = 3,
  kInternal = 4,
  kNotSupport = 5,
  kNotFound = 6,
  kUnavailable = 7,
  kSyscall = 8,
  kTimeout = 9,
  kOpenFile = 10,
  kTcpConnect = 11,
  kRoceConnect = 12,
  kTcpTransfer = 13,
  kRoceTransfer = 14,
  kRuntime = 15,
  kDriver = 16,
  kProfiling = 17,
  kCce = 18,
  kNetwork = 19,
  kAgain = 20,
  kRemote = 21,
  kSuspending = 22,
  kOpRetryFail = 23,
  kOutOfMemory = 24,
};

// HcclDataType: the types that calls here take.
enum class DataType : int32_t {
  kInt8 = 0,
  kInt16 = 1,
  kInt32 = 2,
  kFloat16 = 3,
  kFloat32 = 4,
  kInt64 = 5,
  kUInt8 = 7,
  kFloat64 = 10,
  kBFloat16 = 11,
};

// HcclReduceOp.
enum class Reduction : int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// HcclCommConfig. HCCL knows by `size` and `version` which fields there are.
struct CommConfig {
  uint64_t size;
  uint32_t magic;
  uint32_t version;
  uint64_t reserved;
  uint32_t buffer_size;
  uint32_t deterministic;
  char name[kCommNameBytes];
  char udi[128];
  uint32_t expansion_mode;
  uint32_t rdma_traffic_class;
  uint32_t rdma_service_level;
  uint32_t world_rank;
  uint64_t job;
  uint8_t graph_zero_copy;
  int32_t execution_timeout;
  char algorithm[1600];
  char retry_enable[50];
  char retry_params[128];
  char buffer_name[128];
  uint32_t qos;
  uint64_t symmetric_window_bytes;
};
constexpr uint32_t kConfigMagic = 0xf0f0f0f0;
constexpr uint32_t kConfigVersion = 10;
constexpr uint32_t kConfigNotSet = 0xffffffff;
constexpr uint64_t kDefaultSymmetricWindow = 16;

// HcclSendRecvType and HcclSendRecvItem.
enum class SendRecvType : int32_t { kSend = 0, kRecv = 1 };
struct SendRecvItem {
  SendRecvType way;
  void* data;
  uint64_t count;
  DataType type;
  uint32_t peer;
};

// As sub_comm_id of a rank that is in no part.
constexpr uint64_t kNoSubComm = 0xffffffff;

// aclError: 0 is success.
using AclError = int32_t;
constexpr AclError kAclBadAlloc = 200000;
constexpr AclError kAclNotSupported = 207000;

// ACL_EVENT_SYNC and ACL_EVENT_CAPTURE_STREAM_PROGRESS: events that streams wait for, and whose
// state can be asked.
constexpr uint32_t kEventFlags = 0x1 | 0x2;

// aclrtEventRecordedStatus.
enum class EventStatus : int32_t { kNotReady = 0, kComplete = 1 };

// aclrtMemcpyKind and aclrtMemMallocPolicy: those that are used here.
enum class CopyKind : int32_t { kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3 };
enum class AllocationPolicy : int32_t { kHugeFirst = 0 };

// aclmdlRICaptureStatus: whether a stream's calls go into a graph.
enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };

// aclmdlRICaptureMode: how much a capture forbids the calls of a thread.
enum class CaptureMode : int32_t { kRelaxed = 2 };

// aclrtCallback.
using Callback = void (*)(void* user_data);

// CANN's functions, each looked up once in its library.
struct Api {
  Result (*get_root_info)(RootInfo* root_info);
  Result (*comm_init_root_info)(uint32_t num_ranks, const RootInfo* root_info, uint32_t rank,
                                Comm* comm);
  // Null if the library is too old: these four, and all_gather_v and reduce_scatter_v below.
  Result (*comm_init_root_info_config)(uint32_t num_ranks, const RootInfo* root_info, uint32_t rank,
                                       const CommConfig* config, Comm* comm);
  Result (*comm_init_cluster_info)(const char* rank_table, uint32_t rank, Comm* comm);
  Result (*comm_init_cluster_info_config)(const char* rank_table, uint32_t rank, CommConfig* config,
                                          Comm* comm);
  Result (*create_sub_comm)(Comm* comm, uint32_t num_ranks, uint32_t* ranks, uint64_t sub_comm_id,
                            uint32_t rank, CommConfig* config, Comm* sub_comm);
  Result (*comm_destroy)(Comm comm);
  Result (*get_rank_size)(Comm comm, uint32_t* rank_size);
  Result (*get_rank_id)(Comm comm, uint32_t* rank);
  Result (*get_comm_name)(Comm comm, char* name);
  Result (*get_comm_async_error)(Comm comm, Result* error);
  // Counts and displacements: uint64_t on the host, in elements. They stay valid until the stream
  // is past the call, whenever HCCL reads them.
  Result (*all_gather_v)(void* send, uint64_t send_count, void* receive, const void* recv_counts,
                         const void* rdispls, DataType type, Comm comm, Stream stream);
  Result (*reduce_scatter_v)(void* send, const void* send_counts, const void* sdispls,
                             void* receive, uint64_t recv_count, DataType type, Reduction op,
                             Comm comm, Stream stream);
  Result (*all_gather)(void* send, void* receive, uint64_t send_count, DataType type, Comm comm,
                       Stream stream);
  Result (*reduce_scatter)(void* send, void* receive, uint64_t recv_count, DataType type,
                           Reduction op, Comm comm, Stream stream);
  Result (*all_reduce)(void* send, void* receive, uint64_t count, DataType type, Reduction op,
                       Comm comm, Stream stream);
  Result (*reduce)(void* send, void* receive, uint64_t count, DataType type, Reduction op,
                   uint32_t root, Comm comm, Stream stream);
  Result (*broadcast)(void* data, uint64_t count, DataType type, uint32_t root, Comm comm,
                      Stream stream);
  Result (*all_to_all_v)(const void* send, const void* send_counts, const void* sdispls,
                         DataType send_type, const void* receive, const void* recv_counts,
                         const void* rdispls, DataType recv_type, Comm comm, Stream stream);
  Result (*send)(void* data, uint64_t count, DataType type, uint32_t peer, Comm comm,
                 Stream stream);
  Result (*recv)(void* data, uint64_t count, DataType type, uint32_t peer, Comm comm,
                 Stream stream);
  Result (*batch_send_recv)(SendRecvItem* items, uint32_t num_items, Comm comm, Stream stream);
  Result (*barrier)(Comm comm, Stream stream);

  AclError (*get_device)(int32_t* device);
  AclError (*set_device)(int32_t device);
  AclError (*memset_async)(void* address, size_t room_bytes, int32_t value, size_t bytes,
                           Stream stream);
  AclError (*memcpy_async)(void* to, size_t room_bytes, const void* from, size_t bytes,
                           CopyKind kind, Stream stream);
  AclError (*malloc)(void** address, size_t bytes, AllocationPolicy policy);
  AclError (*free)(void* address);
  const char* (*get_soc_name)();
  AclError (*create_stream)(Stream* stream);
  AclError (*destroy_stream)(Stream stream);
  AclError (*synchronize_stream)(Stream stream, int32_t timeout_ms);
  AclError (*stream_wait_event)(Stream stream, Event event);
  AclError (*create_event)(Event* event);
  // Null if the library is too old. Its events may be recorded again, and there can be any number.
  AclError (*create_event_ex)(Event* event, uint32_t flags);
  AclError (*destroy_event)(Event event);
  AclError (*record_event)(Event event, Stream stream);
  AclError (*query_event_status)(Event event, EventStatus* status);
  const char* (*get_recent_error)();
  // Null if the library has no graphs, or does not report their end.
  AclError (*capture_get_info)(Stream stream, CaptureStatus* status, Graph* graph);
  AclError (*exchange_capture_mode)(CaptureMode* mode);
  // Calling it again with the same function and graph is an error.
  AclError (*on_graph_destroyed)(Graph graph, Callback function, void* user_data);
};

// Opens libhccl.so and libascendcl.so once per process, and leaves them open. ERROR_UNSUPPORTED
// with the loader's message if that fails.
Status Load(const Api** api);

// Turns a result of HCCL or of the runtime into a Status: Ok, or an error code with the function's
// name (`call`), the number, its name and CANN's error text, which `said` gets, too.
Status ToStatus(const Api& api, Result result, const char* call, std::string* said = nullptr);
Status ToStatus(const Api& api, AclError error, const char* call);

// HCCL's name of a result, such as "HCCL_E_PARA".
const char* Name(Result result);

// The type in which elements are passed to HCCL when a call only moves them: their own, or `scale`
// int8 each if HCCL does not document their type.
struct Carriage {
  DataType type = DataType::kInt8;
  int64_t scale = 1;
};
// `all_gather_v`: of HcclAllGatherV, which documents fewer types than the other calls.
Carriage CarriageOf(DType dtype, bool all_gather_v = false);

// HCCL's numbers of a reduction; ERROR_UNSUPPORTED if HCCL documents no such type or operation:
// of HcclReduceScatterV, and of HcclAllReduce, HcclReduceScatter and HcclReduce.
Status FindReductionV(DType dtype, ReduceOp op, DataType* type, Reduction* reduction);
Status FindReduction(DType dtype, ReduceOp op, DataType* type, Reduction* reduction);

// ERROR_UNSUPPORTED if this SoC has no HcclReduceScatterV of the operation.
Status CheckReductionV(const Api& api, ReduceOp op);

// Which of the two V calls this library and this SoC have, and this topology, as far as HCCL has
// been asked. All ranks of a group use what all have.
struct Abilities {
  bool all_gather_v = true;
  bool reduce_scatter_v = true;
  std::string why_not;  // the reason if one is missing
};

// `several_servers`: whether the group is known to be on more than one.
Abilities AbilitiesOf(const Api& api, bool several_servers);

// Writes to standard error, once per process, that calls are replaced, and why.
void WarnOfReplacement(const Abilities& abilities);

}  // namespace collops::hccl
