#pragma once

#include "comm/backends/hccl/api.h"
#include "core/status.h"

namespace collops::hccl {

// Makes an NPU the thread's current one for as long as it lives: HCCL and the runtime act on that
// one, and a caller may have chosen another since. A thread that had none keeps this one, as the
// runtime has no way back.
class DeviceScope {
 public:
  DeviceScope(const Api& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // Ok, or why the NPU could not be chosen.
  const Status& status() const { return status_; }

 private:
  const Api& api_;
  int32_t before_ = -1;  // what is to be chosen again, -1: nothing
  Status status_;
};

}  // namespace collops::hccl
