#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

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

// HcclDataType: the types that the two V calls take.
enum class DataType : int32_t {
  kInt8 = 0,
  kInt16 = 1,
  kInt32 = 2,
  kFloat16 = 3,
  kFloat32 = 4,
  kBFloat16 = 11,
};

// HcclReduceOp.
enum class Reduction : int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// aclError: 0 is success.
using AclError = int32_t;
constexpr AclError kAclBadAlloc = 200000;
constexpr AclError kAclNotSupported = 207000;

// aclrtEventRecordedStatus.
enum class EventStatus : int32_t { kNotReady = 0, kComplete = 1 };

// aclmdlRICaptureStatus: whether a stream's calls go into a graph.
enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };

// aclrtCallback.
using Callback = void (*)(void* user_data);

// CANN's functions, each looked up once in its library.
struct Api {
  Result (*get_root_info)(RootInfo* root_info);
  Result (*comm_init_root_info)(uint32_t num_ranks, const RootInfo* root_info, uint32_t rank,
                                Comm* comm);
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

  AclError (*get_device)(int32_t* device);
  AclError (*set_device)(int32_t device);
  AclError (*memset_async)(void* address, size_t room_bytes, int32_t value, size_t bytes,
                           Stream stream);
  AclError (*create_event)(Event* event);
  AclError (*destroy_event)(Event event);
  AclError (*record_event)(Event event, Stream stream);
  AclError (*query_event_status)(Event event, EventStatus* status);
  const char* (*get_recent_error)();
  // Null if the library has no graphs, or does not report their end.
  AclError (*capture_get_info)(Stream stream, CaptureStatus* status, Graph* graph);
  // Calling it again with the same function and graph is an error.
  AclError (*on_graph_destroyed)(Graph graph, Callback function, void* user_data);
};

// Opens libhccl.so and libascendcl.so once per process, and leaves them open. ERROR_UNSUPPORTED
// with the loader's message if that fails.
Status Load(const Api** api);

}  // namespace collops::hccl
