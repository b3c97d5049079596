#pragma once

#include <cuda_runtime_api.h>

#include "collops/kernels/cuda/driver.h"

namespace collops_sim {

extern const collops::cuda::DriverApi kSimulated;

}  // namespace collops_sim

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
