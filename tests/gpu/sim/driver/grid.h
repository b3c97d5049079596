#pragma once

#include <cstdint>
#include <vector>

#include "../../cpp/kernels/kernel_table.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "driver/context.h"

namespace collops_sim {

using Kernel = collops::cuda::Kernel<collops::cuda::HostBlock>;

struct Grid {
  uint32_t blocks = 1;
  uint32_t threads = 1;
};

// Runs the body in every block: a drawn number of blocks at once, each in a thread, and another
// begins only when one ends. A wait of longer than TimeoutS() is a mistake and ends the kernel.
Result RunGrid(const Kernel& kernel, const void* args, const Grid& grid, Context* context);

}  // namespace collops_sim
