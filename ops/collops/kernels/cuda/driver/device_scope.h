#pragma once

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/api.h"

namespace collops::cuda {

// Makes a device's primary context, which CUDA's runtime and so torch use, the thread's current
// one while it lives. A primary context is retained at its first use here and kept until the
// process ends, because streams, modules and memory of others may lie in it.
class DeviceScope {
 public:
  // `device` counts as cuDeviceGet does.
  DeviceScope(const DriverApi& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // Ok, or why the context could not be made current.
  const Status& status() const { return status_; }

 private:
  Status Enter(int device);

  const DriverApi& api_;
  bool pushed_ = false;
  Status status_;
};

// The primary context of a device, retained. Thread-safe.
Status PrimaryContext(const DriverApi& api, int device, Context* context);

// The device of the thread's current context. A thread that has chosen none works on device 0 in
// CUDA's runtime, and so in torch.
Status CurrentDevice(const DriverApi& api, int* device);

}  // namespace collops::cuda
