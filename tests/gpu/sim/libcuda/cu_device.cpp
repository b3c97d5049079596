// Devices and errors of a simulated libcuda, from its published signatures.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "collops/kernels/cuda/driver.h"
#include "driver/context.h"

using namespace collops_sim;
using collops::cuda::Device;
using collops::cuda::Uuid;

namespace {

struct Named {
  int code;
  const char* name;
  const char* text;
};

constexpr Named kResults[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Named* FindResult(Result result) {
  for (const Named& named : kResults) {
    if (named.code == static_cast<int>(result)) return &named;
  }
  return nullptr;
}

int Number(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoi(text);
}

// What torch may ask for, beside those of numbers.h.
constexpr auto kMaxSharedBytesPerBlock = static_cast<DeviceAttribute>(97);
constexpr auto kVirtualMemory = static_cast<DeviceAttribute>(102);
constexpr auto kFileDescriptorHandles = static_cast<DeviceAttribute>(103);

int Attribute(DeviceAttribute attribute, Device device) {
  switch (attribute) {
    case DeviceAttribute::kMultiprocessorCount:
      return kMultiprocessors;
    case DeviceAttribute::kL2CacheBytes:
      return 4 << 20;
    case DeviceAttribute::kComputeCapabilityMajor:
      return Number("COLLOPS_SIM_SM", 90) / 10;
    case DeviceAttribute::kComputeCapabilityMinor:
      return Number("COLLOPS_SIM_SM", 90) % 10;
    case DeviceAttribute::kMpsEnabled:
      return Number("COLLOPS_SIM_MPS", 0);
  }
  if (attribute == kPciBusId) return 16 + device;
  if (attribute == kMaxSharedBytesPerBlock) return 227 * 1024;
  for (const DeviceAttribute has : {kUnifiedAddressing, kVirtualMemory, kFileDescriptorHandles}) {
    if (attribute == has) return 1;
  }
  return 0;
}

Result EnterFor(const char* function, Device device) {
  const Result result = Enter(function, kNeedsInit);
  if (result != Result::kSuccess) return result;
  return PrimaryOf(device) == nullptr ? Result::kInvalidDevice : result;
}

}  // namespace

extern "C" {

Result cuGetErrorName(Result error, const char** name) {
  const Named* found = FindResult(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? kInvalidValue : Result::kSuccess;
}
Result cuGetErrorString(Result error, const char** text) {
  const Named* found = FindResult(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? kInvalidValue : Result::kSuccess;
}

Result cuDriverGetVersion(int* version) {
  const Result result = Enter("cuDriverGetVersion", 0);
  *version = Number("COLLOPS_SIM_DRIVER", 13000);
  return result;
}
Result cuDeviceGetCount(int* count) {
  const Result result = Enter("cuDeviceGetCount", kNeedsInit);
  if (result == Result::kSuccess) *count = NumDevices();
  return result;
}
Result cuDeviceGet(Device* device, int ordinal) {
  const Result result = EnterFor("cuDeviceGet", ordinal);
  if (result == Result::kSuccess) *device = ordinal;
  return result;
}
Result cuDeviceGetName(char* name, int bytes, Device device) {
  const Result result = EnterFor("cuDeviceGetName", device);
  if (result == Result::kSuccess) {
    std::snprintf(name, static_cast<size_t>(bytes), "simulated GPU %d", device);
  }
  return result;
}
Result cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  const Result result = EnterFor("cuDeviceGetUuid_v2", device);
  if (result != Result::kSuccess) return result;
  std::memset(uuid, 0, sizeof(*uuid));
  std::snprintf(uuid->bytes, sizeof(uuid->bytes), "simulated-%d", device);
  return result;
}
Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, Device device) {
  const Result result = EnterFor("cuDeviceGetAttribute", device);
  if (result != Result::kSuccess) return result;
  *value = Attribute(attribute, device);
  if (*value >= 0) return result;
  return Refuse(kInvalidValue, "this driver does not know the attribute");
}
Result cuDeviceGetPCIBusId(char* id, int bytes, Device device) {
  const Result result = EnterFor("cuDeviceGetPCIBusId", device);
  if (result == Result::kSuccess) {
    std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", 16 + device);
  }
  return result;
}
Result cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  const Result result = EnterFor("cuDeviceCanAccessPeer", device);
  if (result != Result::kSuccess) return result;
  if (PrimaryOf(peer) == nullptr) return Result::kInvalidDevice;
  *can = CanAccessPeer(device, peer) ? 1 : 0;
  return result;
}

}  // extern "C"
