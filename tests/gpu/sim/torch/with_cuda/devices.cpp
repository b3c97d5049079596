// Devices and errors of the runtime.
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "torch/with_cuda/runtime.h"

using collops::cuda::DeviceAttribute;
using collops::cuda::Result;
using collops_sim::kSimulated;

namespace cudart_on_sim {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr size_t kSharedBytes = 48 * 1024;

constexpr int kMostDevices = 16;

// The primary context, which is retained once and until the process ends.
Result ContextOf(int device, void** context) {
  static std::mutex mutex;
  static void* contexts[kMostDevices] = {};
  if (device < 0 || device >= kMostDevices) return Result::kInvalidDevice;
  Result result = kSimulated.init(0);
  const std::lock_guard<std::mutex> lock(mutex);
  if (result == Result::kSuccess && contexts[device] == nullptr) {
    result = kSimulated.primary_ctx_retain(&contexts[device], device);
  }
  *context = contexts[device];
  return result;
}

// Asks the driver until a question fails.
Result Describe(cudaDeviceProp* found, int device) {
  const auto ask = [&](DeviceAttribute attribute, int* value) {
    return kSimulated.device_get_attribute(value, attribute, device);
  };
  Result result = kSimulated.device_get_name(found->name, sizeof(found->name), device);
  const std::pair<DeviceAttribute, int*> asked[] = {
      {DeviceAttribute::kComputeCapabilityMajor, &found->major},
      {DeviceAttribute::kComputeCapabilityMinor, &found->minor},
      {DeviceAttribute::kMultiprocessorCount, &found->multiProcessorCount},
      {DeviceAttribute::kL2CacheBytes, &found->l2CacheSize},
      {collops_sim::kPciBusId, &found->pciBusID},
      {collops_sim::kUnifiedAddressing, &found->unifiedAddressing},
  };
  for (const auto& [attribute, value] : asked) {
    if (result == Result::kSuccess) result = ask(attribute, value);
  }
  found->sharedMemPerBlock = kSharedBytes;
  found->warpSize = 32;
  found->maxThreadsPerBlock = 1024;
  found->maxThreadsPerMultiProcessor = 2048;
  found->regsPerBlock = 65536;
  return result;
}

}  // namespace

cudaError_t Kept(Result result) {
  if (result != Result::kSuccess) last_error = static_cast<cudaError_t>(result);
  return static_cast<cudaError_t>(result);
}

Result Choose(int device) {
  void* context = nullptr;
  void* before = nullptr;
  Result result = ContextOf(device, &context);
  if (result == Result::kSuccess) result = kSimulated.ctx_get_current(&before);
  if (result != Result::kSuccess || before == context) return result;
  if (before != nullptr) static_cast<void>(kSimulated.ctx_pop_current(&before));
  return kSimulated.ctx_push_current(context);
}

Result Enter() {
  void* context = nullptr;
  Result result = kSimulated.init(0);
  if (result == Result::kSuccess) result = kSimulated.ctx_get_current(&context);
  return result == Result::kSuccess && context == nullptr ? Choose(0) : result;
}

}  // namespace cudart_on_sim

using namespace cudart_on_sim;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  static_cast<void>(kSimulated.get_error_name(Result(error), &name));
  return name == nullptr ? "unrecognized error code" : name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  static_cast<void>(kSimulated.get_error_string(Result(error), &text));
  return text == nullptr ? "unrecognized error code" : text;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return Kept(kSimulated.driver_get_version(version));
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  const Result result = kSimulated.init(0);
  return Kept(result == Result::kSuccess ? kSimulated.device_get_count(count) : result);
}
cudaError_t cudaGetDevice(int* device) {
  return InContext([=] { return kSimulated.ctx_get_device(device); });
}
cudaError_t cudaSetDevice(int device) {
  return Kept(Choose(device));
}
cudaError_t cudaDeviceSynchronize() {
  return InContext([] { return cuCtxSynchronize(); });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  std::memset(found, 0, sizeof(*found));
  size_t free_bytes = 0;
  return InContext([&] {
    const Result result = Describe(found, device);
    return result == Result::kSuccess ? cuMemGetInfo_v2(&free_bytes, &found->totalGlobalMem)
                                      : result;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return InContext(
      [=] { return kSimulated.device_get_attribute(value, DeviceAttribute(attribute), device); });
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  return InContext([=] { return cuDeviceGetPCIBusId(id, bytes, device); });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return InContext([=] { return kSimulated.device_can_access_peer(can, device, peer); });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return InContext([=] {
    void* context = nullptr;
    const Result result = ContextOf(peer, &context);
    return result == Result::kSuccess ? kSimulated.ctx_enable_peer_access(context, flags) : result;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return InContext([=] { return kSimulated.ctx_get_stream_priority_range(least, greatest); });
}

// The driver's functions that torch looks up itself, many at once. It calls few of them.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  *function = dlsym(driver, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(driver, name);
  if (*function == nullptr)
    *function = reinterpret_cast<void*>(+[] { return Result::kNotSupported; });
  if (found != nullptr) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
