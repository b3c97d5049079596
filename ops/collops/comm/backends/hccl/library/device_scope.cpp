#include "collops/comm/backends/hccl/library/device_scope.h"

#include "collops/comm/backends/hccl/library/error.h"

namespace collops::hccl {

DeviceScope::DeviceScope(const Api& api, int device) : api_(api) {
  int32_t current = -1;
  const bool chosen = api.get_device(&current) == 0;
  if (chosen && current == device) return;
  // A thread without a device is no error here: discard CANN's error text.
  if (!chosen) static_cast<void>(api.get_recent_error());
  status_ = ToStatus(api, api.set_device(device), "aclrtSetDevice");
  if (status_.ok() && chosen) before_ = current;
}

DeviceScope::~DeviceScope() {
  if (before_ >= 0) static_cast<void>(api_.set_device(before_));
}

}  // namespace collops::hccl
