#pragma once

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/core/status.h"

namespace collops::hccl {

// Makes an NPU the thread's current device while it lives: HCCL and the runtime use the current
// device, which the caller may have changed. A thread that had none keeps this one, because the
// runtime cannot unset it.
class DeviceScope {
 public:
  DeviceScope(const Api& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // Ok, or why the NPU could not be set.
  const Status& status() const { return status_; }

 private:
  const Api& api_;
  int32_t before_ = -1;  // the device to restore; -1: none
  Status status_;
};

}  // namespace collops::hccl
