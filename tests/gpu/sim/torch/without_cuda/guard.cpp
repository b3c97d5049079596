// The devices, streams and events of type CUDA for torch's C++: futures and the autograd engine use
// them through this class alone. torch's CUDA build has one of its own.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "torch/device.h"
#include "torch/libcuda.h"
#include "torch/without_cuda/allocator.h"

namespace torch_on_sim {
namespace {

class SimGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    if (before != device) setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(CurrentDevice())};
  }
  void setDevice(c10::Device device) const override { Choose(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { Choose(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(NumDevices());
  }

  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(IndexOf(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return StreamOf(IndexOf(device), 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return NewStream(IndexOf(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return NewStream(IndexOf(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = CurrentStream(stream.device_index());
    SetCurrentStream(stream);
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    const OnDevice scope(stream.device_index());
    return IsDone(cuStreamQuery(HandleOf(stream)), "cuStreamQuery");
  }
  void synchronizeStream(const c10::Stream& stream) const override { Synchronize(stream); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    const OnDevice scope(device);
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    const OnDevice scope(stream.device_index());
    if (*event == nullptr) Check(cuEventCreate(event, kNoTiming), "cuEventCreate");
    Check(cuEventRecord(*event, HandleOf(stream)), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    const OnDevice scope(stream.device_index());
    if (event != nullptr) Check(cuStreamWaitEvent(HandleOf(stream), event, 0), "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || IsDone(cuEventQuery(event), "cuEventQuery");
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Check(cuEventSynchronize(event), "cuEventSynchronize");
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) cuEventDestroy_v2(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    RecordStream(memory, stream);
  }

 private:
  static c10::DeviceIndex IndexOf(c10::Device device) {
    return device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(CurrentDevice());
  }
  static bool IsDone(int code, const char* call) {
    if (code != kNotReady) Check(code, call);
    return code != kNotReady;
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, SimGuard)

}  // namespace torch_on_sim

// For tests in Python, which have no other way to torch's current stream of this thread.
extern "C" {
void TorchSimChoose(int device) {
  torch_on_sim::Choose(device);
}
int TorchSimDevice() {
  return torch_on_sim::CurrentDevice();
}
int64_t TorchSimStream(int device) {
  return torch_on_sim::CurrentStream(device).id();
}
void TorchSimSetStream(int device, int64_t id) {
  torch_on_sim::SetCurrentStream(torch_on_sim::StreamOf(device, id));
}
int64_t TorchSimNewStream(int device) {
  return torch_on_sim::NewStream(device).id();
}
int TorchSimIsCaptured(int device, int64_t id) {
  return torch_on_sim::IsCaptured(torch_on_sim::StreamOf(device, id)) ? 1 : 0;
}
}
