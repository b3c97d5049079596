#include "collops/comm/backends/nccl/library.h"

#include <string>

#include "collops/core/process/shared_library.h"
#include "collops/kernels/cuda/blaslt.h"

namespace collops::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";

PackageFolder& Package() {
  static auto* const folder = new PackageFolder;
  return *folder;
}

// The library that a search finds, as torch has loaded it, goes first.
std::string PathOf() {
  if (dlopen(kName, RTLD_NOW | RTLD_NOLOAD) != nullptr) return kName;
  const std::string path = Package().Find(kName);
  return path.empty() ? kName : path;
}

std::string TextOf(int version) {
  return Concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

struct Loaded {
  Api api = {};
  Status status;
  int version = 0;

  Loaded() {
    SharedLibrary library("backend nccl", PathOf().c_str());
    library.Find("ncclGetVersion", &api.get_version);
    library.Find("ncclGetUniqueId", &api.get_unique_id);
    library.Find("ncclCommInitRankConfig", &api.comm_init_rank_config);
    library.Find("ncclCommSplit", &api.comm_split);
    library.Find("ncclCommFinalize", &api.comm_finalize);
    library.Find("ncclCommDestroy", &api.comm_destroy);
    library.Find("ncclCommAbort", &api.comm_abort);
    library.Find("ncclCommCount", &api.comm_count);
    library.Find("ncclCommUserRank", &api.comm_user_rank);
    library.Find("ncclCommCuDevice", &api.comm_cu_device);
    library.Find("ncclCommGetAsyncError", &api.comm_get_async_error);
    library.Find("ncclGetErrorString", &api.get_error_string);
    library.Find("ncclGetLastError", &api.get_last_error);
    library.Find("ncclGroupStart", &api.group_start);
    library.Find("ncclGroupEnd", &api.group_end);
    library.Find("ncclAllGather", &api.all_gather);
    library.Find("ncclReduceScatter", &api.reduce_scatter);
    library.Find("ncclAllReduce", &api.all_reduce);
    library.Find("ncclBroadcast", &api.broadcast);
    library.Find("ncclSend", &api.send);
    library.Find("ncclRecv", &api.recv);
    status = library.status();
    if (status.ok()) status = CheckVersion();
  }

  Status CheckVersion() {
    COLLOPS_CHECK_ARG(api.get_version(&version) == Result::kSuccess && version >= kOldestVersion,
                      ERROR_UNSUPPORTED, "backend nccl: NCCL ", TextOf(version),
                      " is too old, 2.27 is needed: install nvidia-nccl-cu13");
    return Ok();
  }
};

const Loaded& Library() {
  static const Loaded* const loaded = new Loaded;
  return *loaded;
}

}  // namespace

Status Load(const Api** api) {
  *api = &Library().api;
  return Library().status;
}

void SetWheelFolder(const std::string& folder) {
  Package().Set(folder);
  // NVIDIA's packages lie beside each other: nvidia/nccl/lib, nvidia/cu13/lib.
  if (!folder.empty()) cuda::SetBlasPackages(folder + "/../..");
}

std::string VersionText() {
  return TextOf(Library().status.ok() ? Library().version : 0);
}

namespace {

ErrorCode CodeOf(Result result) {
  switch (result) {
    case Result::kInvalidArgument:
    case Result::kInvalidUsage:
      return ERROR_INVALID_PARAM;
    case Result::kRemoteError:
      return ERROR_PEER_LOST;
    case Result::kUnhandledCudaError:
    case Result::kSystemError:
    case Result::kInternalError:
    case Result::kSuccess:
    case Result::kInProgress:
      break;
  }
  return ERROR_RT_FAIL;
}

std::string Trimmed(const char* text) {
  std::string line = text == nullptr ? "" : text;
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  return line;
}

}  // namespace

Status ToStatus(const Api& api, Result result, const char* call) {
  if (result == Result::kSuccess || result == Result::kInProgress) return Ok();
  const std::string last = Trimmed(api.get_last_error(nullptr));
  return Error(CodeOf(result), call, " failed: ", Trimmed(api.get_error_string(result)), " (",
               static_cast<int>(result), ")", last.empty() ? "" : ": ", last);
}

}  // namespace collops::nccl
