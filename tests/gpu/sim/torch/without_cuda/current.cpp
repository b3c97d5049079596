// This thread's device and streams for a torch that was built for CPUs.
#include <algorithm>
#include <array>

#include <c10/util/Exception.h>

#include "torch/device.h"
#include "torch/libcuda.h"

namespace torch_on_sim {
namespace {

thread_local int chosen = 0;
thread_local std::array<c10::StreamId, kMostDevices> current_streams{};

void* ContextOf(int device) {
  Check(cuInit(0), "cuInit");
  void* context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

}  // namespace

int NumDevices() {
  Check(cuInit(0), "cuInit");
  int count = 0;
  Check(cuDeviceGetCount(&count), "cuDeviceGetCount");
  return std::min(count, kMostDevices);
}

int CurrentDevice() {
  return chosen;
}

void Choose(int device) {
  TORCH_CHECK(device >= 0 && device < kMostDevices, "there is no device ", device);
  Check(cuCtxSetCurrent(ContextOf(device)), "cuCtxSetCurrent");
  chosen = device;
}

c10::Stream CurrentStream(int device) {
  return StreamOf(device, current_streams.at(static_cast<size_t>(device)));
}

void SetCurrentStream(const c10::Stream& stream) {
  current_streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
}

c10::Stream NewStream(int device) {
  const OnDevice scope(device);
  void* made = nullptr;
  Check(cuStreamCreate(&made, kNonBlocking), "cuStreamCreate");
  return StreamOf(device, static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(made)));
}

void* HandleOf(const c10::Stream& stream) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
}

}  // namespace torch_on_sim
