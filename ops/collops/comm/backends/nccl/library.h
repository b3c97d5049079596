#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::nccl {

// NCCL's functions and types, declared here from nccl.h of 2.27 as published; a test compares the
// declarations with that header and with newer ones. NCCL's C enumerations have four bytes.

using Comm = void*;
using cuda::Stream;

constexpr size_t kUniqueIdBytes = 128;

// Made by rank 0, and passed to every rank: NCCL connects the ranks that have the same one.
struct UniqueId {
  char internal[kUniqueIdBytes];
};

// ncclResult_t. Newer versions may return other numbers, too.
enum class Result : int32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDataType_t: the types that calls here pass.
enum class DataType : int32_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
};

// ncclRedOp_t.
enum class Reduction : int32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

// ncclConfig_t of 2.27. NCCL knows by `size` and `version` which fields there are.
struct Config {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t blocking;
  int32_t cga_cluster_size;
  int32_t min_ctas;
  int32_t max_ctas;
  const char* net_name;
  int32_t split_share;
  int32_t traffic_class;
  const char* comm_name;
  int32_t collnet_enable;
  int32_t cta_policy;
  int32_t shrink_share;
  int32_t nvls_ctas;
};
constexpr uint32_t kConfigMagic = 0xcafebeef;
constexpr uint32_t kConfigVersion = 22700;
constexpr int32_t kConfigNotSet = INT_MIN;
constexpr int32_t kNoColor = -1;

// The oldest version whose calls and config are used here.
constexpr int kOldestVersion = 22700;

// NCCL's functions, each looked up once in libnccl.so.2.
struct Api {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank_config)(Comm* comm, int num_ranks, UniqueId id, int rank, Config* config);
  Result (*comm_split)(Comm comm, int color, int key, Comm* part, Config* config);
  Result (*comm_finalize)(Comm comm);
  Result (*comm_destroy)(Comm comm);
  Result (*comm_abort)(Comm comm);
  Result (*comm_count)(Comm comm, int* count);
  Result (*comm_user_rank)(Comm comm, int* rank);
  Result (*comm_cu_device)(Comm comm, int* device);
  Result (*comm_get_async_error)(Comm comm, Result* error);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);
  Result (*group_start)();
  Result (*group_end)();
  Result (*all_gather)(const void* send, void* receive, size_t send_count, DataType type, Comm comm,
                       Stream stream);
  Result (*reduce_scatter)(const void* send, void* receive, size_t recv_count, DataType type,
                           Reduction op, Comm comm, Stream stream);
  Result (*all_reduce)(const void* send, void* receive, size_t count, DataType type, Reduction op,
                       Comm comm, Stream stream);
  Result (*broadcast)(const void* send, void* receive, size_t count, DataType type, int root,
                      Comm comm, Stream stream);
  Result (*send)(const void* data, size_t count, DataType type, int peer, Comm comm, Stream stream);
  Result (*recv)(void* data, size_t count, DataType type, int peer, Comm comm, Stream stream);
};

// Opens libnccl.so.2 once per process, and leaves it open. ERROR_UNSUPPORTED with the loader's
// message if that fails, or if the library is older than kOldestVersion.
Status Load(const Api** api);
// As Load(), from the folder of a Python package that holds the library. Takes effect before the
// first Load() only.
void SetWheelFolder(const std::string& folder);
// The version of the loaded library, such as "2.28.9"; "0.0.0" if it is not loaded.
std::string VersionText();

// Turns a result of NCCL into a Status: Ok, also for kInProgress, or an error code with the
// function's name (`call`), NCCL's text and, if there is one, its last error of this process.
Status ToStatus(const Api& api, Result result, const char* call);

}  // namespace collops::nccl
