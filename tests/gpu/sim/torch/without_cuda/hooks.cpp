// Says to torch's C++ that there are devices of type CUDA, so that its autograd engine uses them.
#include <ATen/detail/CUDAHooksInterface.h>

#include "torch/device.h"

namespace at {

// torch looks for it by this name.
struct CUDAHooks : public CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}

  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  void init() const override { torch_on_sim::NumDevices(); }
  DeviceIndex deviceCount() const override {
    return static_cast<DeviceIndex>(torch_on_sim::NumDevices());
  }
  int getNumGPUs() const override { return torch_on_sim::NumDevices(); }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(torch_on_sim::CurrentDevice());
  }
  void setCurrentDevice(DeviceIndex device) const override { torch_on_sim::Choose(device); }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
