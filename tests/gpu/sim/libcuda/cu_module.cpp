// Modules and kernels of a simulated libcuda, from its published signatures. The kernels are those
// of kernel_table.h; of a fatbin only the magic number is looked at.
#include <cstring>
#include <memory>
#include <set>

#include "../../cpp/kernels/kernel_table.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/driver.h"
#include "driver/grid.h"
#include "driver/memory.h"
#include "driver/stream.h"

// Kernels that wait for signals, for tests of the simulation itself.
namespace collops_sim {

// Ends when *signal has reached `value`.
struct WaitArgs {
  static constexpr const char* kName = "sim_wait";
  const uint32_t* signal;
  uint32_t value;
};
template <class Block>
void Wait(const WaitArgs& args, Block& block) {
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    while (collops::cuda::LoadSignal(args.signal) < args.value) collops::cuda::Pause();
  });
}

// Ends when every block has come, which is wrong: no launch promises that all run at once. `came`
// has a word for each block.
struct MeetArgs {
  static constexpr const char* kName = "sim_meet";
  uint32_t* came;
};
template <class Block>
void Meet(const MeetArgs& args, Block& block) {
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    collops::cuda::StoreSignal(args.came + block.index(), uint32_t{1});
    for (uint32_t other = 0; other < block.count(); ++other) {
      while (collops::cuda::LoadSignal(args.came + other) == 0) collops::cuda::Pause();
    }
  });
}

template <class Block>
inline constexpr collops::cuda::Kernel<Block> kWaitingKernels[] = {
    collops::cuda::MakeKernel<Block, WaitArgs, Wait<Block>>(),
    collops::cuda::MakeKernel<Block, MeetArgs, Meet<Block>>(),
};

}  // namespace collops_sim

using namespace collops_sim;

namespace {

constexpr unsigned kCall = kNeedsInit | kNeedsContext;
constexpr unsigned kSlowCall = kCall | kIsUnsafe | kMayWait;
constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kSharedBytes = 48 * 1024;

struct Module {
  Context* context;
};

struct Function {
  const Module* module;
  const Kernel* kernel;
  bool is_loaded = false;
};

struct Modules {
  std::mutex mutex;
  std::set<void*> modules;
  std::set<void*> functions;
};
Modules& GetModules() {
  static auto* const modules = new Modules;
  return *modules;
}

const Kernel* FindBody(const char* name) {
  for (const Kernel& kernel : kWaitingKernels<collops::cuda::HostBlock>) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return collops::cuda::FindKernel<collops::cuda::HostBlock>(name);
}

Result FindFunction(void* handle, Function** function) {
  Modules& modules = GetModules();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  *function = static_cast<Function*>(handle);
  if (modules.functions.count(handle) != 0) return Result::kSuccess;
  return Refuse(kInvalidHandle, "there is no such kernel");
}

// A copy of what a kernel was given, and the device memory to which it points. Every aligned word
// that is such an address counts as one.
struct Arguments {
  std::shared_ptr<char> copy;
  std::vector<const void*> memory;

  Arguments(const void* args, size_t bytes, size_t alignment)
      : copy(static_cast<char*>(
                 std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)),
             std::free) {
    std::memcpy(copy.get(), args, bytes);
    for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
      const void* word = nullptr;
      std::memcpy(&word, copy.get() + at, sizeof(word));
      if (Find(reinterpret_cast<uint64_t>(word), 0).kind != Allocation::kNothing) {
        memory.push_back(word);
      }
    }
  }
};

// Memory that the kernel's context cannot reach, or nothing. Addresses that lie in device memory
// themselves are not seen.
std::string CheckMemory(const Arguments& given, Context* context) {
  const std::lock_guard<std::mutex> lock(context->peers_mutex);
  for (const void* address : given.memory) {
    const Allocation found = Find(reinterpret_cast<uint64_t>(address), 0);
    const std::string wrong = CheckReach(found, context->device, context->peers);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

Result CheckShape(const Grid& grid, uint32_t shared_bytes) {
  if (grid.blocks == 0 || grid.threads == 0) {
    return Refuse(kInvalidValue, "a grid without blocks or threads");
  }
  if (grid.threads > kMostThreads) {
    return Refuse(kInvalidValue, "a block of more than 1024 threads");
  }
  if (shared_bytes > kSharedBytes) {
    return Refuse(kInvalidValue, "more shared memory than a block has unasked");
  }
  return Result::kSuccess;
}

Result LaunchOn(void* stream_handle, void* handle, const Grid& grid, uint32_t shared, void** args,
                void** extra) {
  Function* function = nullptr;
  Stream* stream = nullptr;
  Result result = FindFunction(handle, &function);
  if (result == Result::kSuccess) result = FindHere(stream_handle, &stream);
  if (result == Result::kSuccess) result = CheckShape(grid, shared);
  if (result != Result::kSuccess) return result;
  if (args == nullptr || extra != nullptr) {
    return Refuse(kInvalidValue, "the kernels take one struct, by `kernelParams`");
  }
  Context* const context = ContextOf(stream);
  if (function->module->context != context) {
    return Refuse(kInvalidHandle, "the kernel was loaded in another context");
  }
  const Kernel* const kernel = function->kernel;
  const Arguments given(args[0], kernel->args_bytes, std::max(kernel->args_align, sizeof(void*)));
  if (!function->is_loaded && context->waiting > 0) {
    Mistake(
        "the first launch of a kernel, without cuFuncLoad, while another one waits: loading it "
        "may wait for that one");
  }
  function->is_loaded = true;
  const std::string wrong = CheckMemory(given, context);
  if (!wrong.empty()) {
    Mistake(std::string(kernel->name) + " uses " + wrong);
    return stream->Enqueue([] { return kIllegalAddress; });
  }
  stream->WaitForRoom();
  return stream->Enqueue([=] { return RunGrid(*kernel, given.copy.get(), grid, context); },
                         given.memory);
}

}  // namespace

extern "C" {

Result cuModuleLoadData(void** module, const void* image) {
  const Result result = Enter("cuModuleLoadData", kSlowCall);
  if (result != Result::kSuccess) return result;
  uint32_t magic = 0;
  if (image != nullptr) std::memcpy(&magic, image, sizeof(magic));
  if (magic != kFatbinMagic) return Refuse(kInvalidImage, "the image is no fatbin");
  Modules& modules = GetModules();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  *module = *modules.modules.insert(new Module{CurrentContext()}).first;
  return result;
}
Result cuModuleUnload(void* module) {
  const Result result = Enter("cuModuleUnload", kSlowCall);
  if (result != Result::kSuccess) return result;
  Modules& modules = GetModules();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  return modules.modules.erase(module) != 0 ? result : kInvalidHandle;
}
Result cuModuleGetFunction(void** function, void* module, const char* name) {
  const Result result = Enter("cuModuleGetFunction", kCall);
  if (result != Result::kSuccess) return result;
  Modules& modules = GetModules();
  const std::lock_guard<std::mutex> lock(modules.mutex);
  if (modules.modules.count(module) == 0) return kInvalidHandle;
  const Kernel* kernel = FindBody(name);
  if (kernel == nullptr) return Refuse(kNotFound, std::string("no kernel ") + name);
  auto* const made = new Function{static_cast<Module*>(module), kernel};
  *function = *modules.functions.insert(made).first;
  return result;
}
// CUDA puts off loading until the first launch otherwise, see CUDA_MODULE_LOADING.
Result cuFuncLoad(void* handle) {
  Function* function = nullptr;
  const Result result = Enter("cuFuncLoad", kSlowCall);
  const Result found = result == Result::kSuccess ? FindFunction(handle, &function) : result;
  if (found == Result::kSuccess) function->is_loaded = true;
  return found;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads, size_t) {
  Function* function = nullptr;
  Result result = Enter("cuOccupancyMaxActiveBlocksPerMultiprocessor", kCall);
  if (result == Result::kSuccess) result = FindFunction(handle, &function);
  if (threads <= 0) result = kInvalidValue;
  if (result == Result::kSuccess) *blocks = kBlocksPerMultiprocessor;
  return result;
}

Result cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                      unsigned int block_x, unsigned int block_y, unsigned int block_z,
                      unsigned int shared, void* stream, void** args, void** extra) {
  const Result result = Enter("cuLaunchKernel", kCall);
  if (result != Result::kSuccess) return result;
  if (grid_y * grid_z * block_y * block_z != 1) {
    return Refuse(kInvalidValue, "grids and blocks have one dimension here");
  }
  return LaunchOn(stream, function, {grid_x, block_x}, shared, args, extra);
}

}  // extern "C"
