// This thread's device and streams, as torch's CUDA build keeps them.
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "torch/device.h"

namespace torch_on_sim {

int CurrentDevice() {
  return c10::cuda::current_device();
}

void Choose(int device) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

c10::Stream CurrentStream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).unwrap();
}

void* HandleOf(const c10::Stream& stream) {
  return c10::cuda::CUDAStream(stream).stream();
}

}  // namespace torch_on_sim
