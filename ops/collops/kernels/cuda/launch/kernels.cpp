#include "collops/kernels/cuda/launch/kernels.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/driver/error.h"
#include "collops/kernels/cuda/launch/fatbin.h"

namespace collops::cuda {
namespace {

// The nvcc of the build. CMake tells.
#if defined(COLLOPS_NVCC)
constexpr const char* kCompiledBy = ", compiled by nvcc " COLLOPS_NVCC ",";
#else
constexpr const char* kCompiledBy = "";
#endif

constexpr int64_t kBytesPerThread = 16;

// Modules by context. Primary contexts, which DeviceScope keeps.
struct Modules {
  std::mutex mutex;
  std::map<Context, std::shared_ptr<const Kernels::Loaded>> loaded;
};

PerProcess<Modules> modules_here;

Status LoadKernel(const DriverApi& api, Module module, const char* name, int multiprocessors,
                  Kernels::Loaded::Kernel* kernel) {
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.module_get_function(&kernel->function, module, name),
                                   "cuModuleGetFunction"));
  if (api.func_load != nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.func_load(kernel->function), "cuFuncLoad"));
  }
  int blocks = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api, api.occupancy_max_active_blocks(&blocks, kernel->function, Kernels::kThreads, 0),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  kernel->most_blocks = std::max(1, blocks * multiprocessors);
  return Ok();
}

Status LoadModule(const DriverApi& api, Kernels::Loaded* loaded) {
  const std::vector<char>* image = nullptr;
  COLLOPS_RETURN_IF_ERROR(ReadFatbin(&image));
  Device device = 0;
  int multiprocessors = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.ctx_get_device(&device), "cuCtxGetDevice"));
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api,
      api.device_get_attribute(&multiprocessors, DeviceAttribute::kMultiprocessorCount, device),
      "cuDeviceGetAttribute"));
  loaded->multiprocessors = multiprocessors;
  Module module = nullptr;
  const Status read =
      ToStatus(api, api.module_load_data(&module, image->data()), "cuModuleLoadData");
  if (!read.ok()) {
    int driver = 0;
    static_cast<void>(api.driver_get_version(&driver));  // LoadDriver() has asked before
    return Error(
        read.code(), "the GPU kernels", kCompiledBy, " are not taken by the driver of CUDA ",
        driver / 1000, ".", driver / 10 % 100, ": ", read.message(),
        "; a driver that is older than the nvcc needs an update, or kernels by an older nvcc");
  }
  for (size_t i = 0; i < kKernelNames.size(); ++i) {
    const Status status =
        LoadKernel(api, module, kKernelNames[i], multiprocessors, &loaded->kernels[i]);
    if (status.ok()) continue;
    static_cast<void>(api.module_unload(module));  // the first error counts
    return Error(status.code(), "the GPU kernel ", kKernelNames[i], ": ", status.message());
  }
  return Ok();
}

}  // namespace

Status Kernels::Available() {
  const std::vector<char>* image = nullptr;
  return ReadFatbin(&image);
}

Status Kernels::Load() {
  Context context = nullptr;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_get_current(&context), "cuCtxGetCurrent"));
  Modules& modules = modules_here.Get();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  std::shared_ptr<const Loaded>& kept = modules.loaded[context];
  if (kept == nullptr) {
    auto fresh = std::make_shared<Loaded>();
    COLLOPS_RETURN_IF_ERROR(LoadModule(api_, fresh.get()));
    kept = std::move(fresh);
  }
  loaded_ = kept;
  return Ok();
}

const Kernels::Loaded::Kernel& Kernels::Find(const char* name) const {
  size_t index = 0;
  while (std::strcmp(kKernelNames[index], name) != 0) ++index;  // nobody has other names
  return loaded_->kernels[index];
}

int Kernels::MostBlocks(const char* name) const {
  return loaded_ == nullptr ? 1 : Find(name).most_blocks;
}

// A block that waits keeps its place. So if such blocks were on every multiprocessor, a product,
// whose blocks need a whole one, could never run, and what waits for that product, such as the call
// of another rank of this GPU, would wait for ever. n blocks are on n multiprocessors at most: one
// in eight stays free, and at least one. Calls of two communicators at a time still fit, where two
// blocks of 512 threads run on a multiprocessor, but may leave products no place.
int Kernels::MostWaitingBlocks() const {
  if (loaded_ == nullptr) return 1;
  const int multiprocessors = loaded_->multiprocessors;
  int most = multiprocessors - std::max(1, multiprocessors / 8);
  for (const char* const name : {MoveArgs::kName, ReduceScatterArgs::kName}) {
    most = std::min(most, MostBlocks(name));
  }
  return std::max(1, most);
}

int Kernels::EnoughBlocks(const char* name, int64_t bytes) const {
  constexpr int64_t kBytesPerBlock = kThreads * kBytesPerThread;
  const int64_t enough = (bytes + kBytesPerBlock - 1) / kBytesPerBlock;
  return static_cast<int>(std::clamp<int64_t>(enough, 1, MostBlocks(name)));
}

Status Kernels::LaunchNamed(const char* name, void* args, int blocks, int threads,
                            Stream stream) const {
  COLLOPS_CHECK_ARG(loaded_ != nullptr, ERROR_RT_FAIL, name, " was launched before it was loaded");
  void* params[] = {args};
  return ToStatus(
      api_,
      api_.launch_kernel(Find(name).function, static_cast<unsigned int>(blocks), 1, 1,
                         static_cast<unsigned int>(threads), 1, 1, 0, stream, params, nullptr),
      name);
}

}  // namespace collops::cuda
