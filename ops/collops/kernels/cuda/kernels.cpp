#include "collops/kernels/cuda/kernels.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collops/core/env.h"
#include "collops/core/process/per_process.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda {
namespace {

constexpr const char* kVariable = "COLLOPS_KERNELS";
constexpr const char* kFile = "collops_kernels.fatbin";
// How every fatbin begins.
constexpr uint32_t kMagic = 0xba55ed50;

// Why the build made no fatbin; empty if it made one. CMake tells.
#if defined(COLLOPS_NO_KERNELS)
constexpr const char* kNoKernels = COLLOPS_NO_KERNELS;
#else
constexpr const char* kNoKernels = "";
#endif

// The folder of the file from which this code was loaded.
std::string OwnFolder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0) return ".";
  const std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The compiled kernels, collops_kernels.fatbin: the file that COLLOPS_KERNELS names, or the one
// beside the library or program that holds this code.
struct Fatbin {
  std::vector<char> image;
  Status status;

  Fatbin() {
    const std::string named = GetVariable(kVariable);
    const std::string path = named.empty() ? OwnFolder() + "/" + kFile : named;
    status = Read(path, !named.empty());
  }

  Status Read(const std::string& path, bool named) {
    std::ifstream file(path, std::ios::binary);
    const char* const why = named ? kVariable : kNoKernels;
    COLLOPS_CHECK_ARG(file.good(), ERROR_UNSUPPORTED,
                      "the GPU kernels are missing: there is no file ", path,
                      *why == '\0' ? ""
                      : named      ? ", which is named by "
                                   : ": ",
                      why);
    image.assign(std::istreambuf_iterator<char>(file), {});
    uint32_t magic = 0;
    if (image.size() > sizeof(magic)) std::memcpy(&magic, image.data(), sizeof(magic));
    COLLOPS_CHECK_ARG(magic == kMagic, ERROR_UNSUPPORTED, "the GPU kernels cannot be read: ", path,
                      " is not a fatbin");
    return Ok();
  }
};

// Read once in a process. ERROR_UNSUPPORTED, with the reason, if there is none. Thread-safe.
Status ReadFatbin(const std::vector<char>** image) {
  static const Fatbin* const fatbin = new Fatbin;
  *image = &fatbin->image;
  return fatbin->status;
}

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
  std::map<Context, std::shared_ptr<const Kernels::Table>> tables;
};

PerProcess<Modules> modules_here;

Status LoadKernel(const DriverApi& api, Module module, const KernelKind& kind, int multiprocessors,
                  Kernels::Table::Kernel* kernel) {
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api, api.module_get_function(&kernel->function, module, kind.name), "cuModuleGetFunction"));
  if (api.func_load != nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.func_load(kernel->function), "cuFuncLoad"));
  }
  int blocks = 0;
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.occupancy_max_active_blocks(&blocks, kernel->function, kind.threads, 0),
               "cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  kernel->most_blocks = std::max(1, blocks * multiprocessors);
  return Ok();
}

Status LoadModule(const DriverApi& api, Kernels::Table* table) {
  const std::vector<char>* image = nullptr;
  COLLOPS_RETURN_IF_ERROR(ReadFatbin(&image));
  Device device = 0;
  int multiprocessors = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.ctx_get_device(&device), "cuCtxGetDevice"));
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api,
      api.device_get_attribute(&multiprocessors, DeviceAttribute::kMultiprocessorCount, device),
      "cuDeviceGetAttribute"));
  table->multiprocessors = multiprocessors;
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
  for (size_t i = 0; i < kKernelKinds.size(); ++i) {
    const Status status =
        LoadKernel(api, module, kKernelKinds[i], multiprocessors, &table->kernels[i]);
    if (status.ok()) continue;
    static_cast<void>(api.module_unload(module));  // the first error counts
    return Error(status.code(), "the GPU kernel ", kKernelKinds[i].name, ": ", status.message());
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
  std::shared_ptr<const Table>& kept = modules.tables[context];
  if (kept == nullptr) {
    auto fresh = std::make_shared<Table>();
    COLLOPS_RETURN_IF_ERROR(LoadModule(api_, fresh.get()));
    kept = std::move(fresh);
  }
  table_ = kept;
  return Ok();
}

const Kernels::Table::Kernel& Kernels::Find(const char* name) const {
  size_t index = 0;
  while (std::strcmp(kKernelKinds[index].name, name) != 0) ++index;  // nobody has other names
  return table_->kernels[index];
}

int Kernels::MostBlocks(const char* name) const {
  return table_ == nullptr ? 1 : Find(name).most_blocks;
}

// A block that waits keeps its place. So if such blocks were on every multiprocessor, a product,
// whose blocks need a whole one, could never run, and what waits for that product, such as the call
// of another rank of this GPU, would wait for ever. n blocks are on n multiprocessors at most: one
// in eight stays free, and at least one. Calls of two communicators at a time still fit, where two
// blocks of 512 threads run on a multiprocessor, but may leave products no place.
int Kernels::MostWaitingBlocks() const {
  if (table_ == nullptr) return 1;
  const int multiprocessors = table_->multiprocessors;
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
  COLLOPS_CHECK_ARG(table_ != nullptr, ERROR_RT_FAIL, name, " was launched before it was loaded");
  void* params[] = {args};
  return ToStatus(
      api_,
      api_.launch_kernel(Find(name).function, static_cast<unsigned int>(blocks), 1, 1,
                         static_cast<unsigned int>(threads), 1, 1, 0, stream, params, nullptr),
      name);
}

}  // namespace collops::cuda
