#include "collops/kernels/cuda/driver/device_scope.h"

#include <map>
#include <mutex>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/driver/error.h"

namespace collops::cuda {
namespace {

struct Retained {
  std::mutex mutex;
  std::map<int, Context> contexts;
};

PerProcess<Retained> retained_here;

}  // namespace

Status PrimaryContext(const DriverApi& api, int device, Context* context) {
  Retained& retained = retained_here.Get();
  const std::lock_guard<std::mutex> lock(retained.mutex);
  const auto found = retained.contexts.find(device);
  if (found != retained.contexts.end()) {
    *context = found->second;
    return Ok();
  }
  Device number = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.device_get(&number, device), "cuDeviceGet"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.primary_ctx_retain(context, number), "cuDevicePrimaryCtxRetain"));
  retained.contexts[device] = *context;
  return Ok();
}

Status CurrentDevice(const DriverApi& api, int* device) {
  Context context = nullptr;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.ctx_get_current(&context), "cuCtxGetCurrent"));
  Device found = 0;
  if (context != nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.ctx_get_device(&found), "cuCtxGetDevice"));
  }
  *device = found;
  return Ok();
}

DeviceScope::DeviceScope(const DriverApi& api, int device) : api_(api), status_(Enter(device)) {}

Status DeviceScope::Enter(int device) {
  Context context = nullptr;
  COLLOPS_RETURN_IF_ERROR(PrimaryContext(api_, device, &context));
  Context current = nullptr;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_get_current(&current), "cuCtxGetCurrent"));
  if (current == context) return Ok();
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_push_current(context), "cuCtxPushCurrent"));
  pushed_ = true;
  return Ok();
}

DeviceScope::~DeviceScope() {
  Context popped = nullptr;
  if (pushed_) static_cast<void>(api_.ctx_pop_current(&popped));
}

}  // namespace collops::cuda
