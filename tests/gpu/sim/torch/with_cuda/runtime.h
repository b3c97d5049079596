#pragma once

#include <cuda_runtime_api.h>

#include "driver/numbers.h"

namespace collops_sim {

extern const collops::cuda::DriverApi kSimulated;

}  // namespace collops_sim

// What it calls of the driver and collops does not, by the published signatures.
extern "C" {
collops_sim::Result cuDeviceGetPCIBusId(char* id, int bytes, int device);
collops_sim::Result cuCtxSynchronize();
collops_sim::Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes);
collops_sim::Result cuMemFreeHost(void* pointer);
collops_sim::Result cuPointerGetAttribute(void* data, collops_sim::PointerAttribute attribute,
                                          uint64_t pointer);
collops_sim::Result cuIpcCloseMemHandle(uint64_t pointer);
collops_sim::Result cuStreamQuery(void* stream);
collops_sim::Result cuLaunchHostFunc(void* stream, void (*function)(void*), void* user_data);
collops_sim::Result cuEventSynchronize(void* event);
}

// CUDA's runtime, as far as torch's CUDA build calls it, on the simulated libcuda. NVIDIA's own
// cannot run there, because it calls the driver through tables that are not published. Preloaded,
// these functions stand before those; what is missing here stays NVIDIA's.
namespace cudart_on_sim {

// The error of a call, kept for cudaGetLastError; the runtime's numbers are the driver's.
cudaError_t Kept(collops::cuda::Result result);
// Makes the primary context of a device this thread's.
collops::cuda::Result Choose(int device);
// This thread's context, at first that of device 0.
collops::cuda::Result Enter();

// The same for a call that needs a context.
template <class Work>
cudaError_t InContext(Work&& work) {
  const collops::cuda::Result entered = Enter();
  return Kept(entered == collops::cuda::Result::kSuccess ? work() : entered);
}

}  // namespace cudart_on_sim
