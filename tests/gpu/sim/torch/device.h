#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>

// This thread's device and its current stream of each device, on the simulated libcuda: those of
// torch's CUDA build (with_cuda), or for a torch that was built for CPUs (without_cuda), in which
// the id of a stream is its handle; 0 is the legacy stream.
namespace torch_on_sim {

constexpr int kMostDevices = 16;

// Fails with the name of the call and what the simulation says.
void Check(int code, const char* call);

int NumDevices();
int CurrentDevice();
void Choose(int device);

inline c10::Stream StreamOf(int device, c10::StreamId id) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, index), id);
}
c10::Stream CurrentStream(int device);
void SetCurrentStream(const c10::Stream& stream);
c10::Stream NewStream(int device);
void* HandleOf(const c10::Stream& stream);
bool IsCaptured(const c10::Stream& stream);

// Chooses a device, and the one before in the end.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const int before_;
};

// A kernel: `work` runs when it is its turn on the stream, in every replay if that is captured.
void Launch(const c10::Stream& stream, std::function<void()> work);
void Synchronize(const c10::Stream& stream);

}  // namespace torch_on_sim
