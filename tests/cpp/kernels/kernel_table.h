#pragma once

#include <cstddef>
#include <cstring>

#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/bodies/leaf_product.h"
#include "collops/kernels/cuda/bodies/reduction.h"
#include "collops/kernels/cuda/bodies/tree_sum.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/cuda/peers/step.h"

// The kernels by name, for a host that runs their bodies itself: the simulated device. kernels.cu
// has the same ones for nvcc; the library names a kernel by its arguments, Args::kName.
namespace collops::cuda {

// A kernel takes one struct by value. `run` is its body in one block; `args` points to the struct,
// at a multiple of `args_align`.
template <class Block>
struct Kernel {
  const char* name;
  size_t args_bytes;
  size_t args_align;
  void (*run)(const void* args, Block& block);
};

template <class Block, class Args, void (*kBody)(const Args&, Block&)>
constexpr Kernel<Block> MakeKernel() {
  return {Args::kName, sizeof(Args), alignof(Args),
          [](const void* args, Block& block) { kBody(*static_cast<const Args*>(args), block); }};
}

template <class Block>
inline constexpr Kernel<Block> kKernels[] = {
    MakeKernel<Block, ReduceSlicesArgs, ReduceSlices<Block>>(),
    MakeKernel<Block, ConvertArgs, Convert<Block>>(),
    MakeKernel<Block, AddArgs, Add<Block>>(),
    MakeKernel<Block, ScaleArgs, Scale<Block>>(),
    MakeKernel<Block, LeafProductArgs, LeafProduct<Block>>(),
    MakeKernel<Block, TreeSumArgs, TreeSum<Block>>(),
    MakeKernel<Block, GateArgs, Gate<Block>>(),
    MakeKernel<Block, MoveArgs, Move<Block>>(),
    MakeKernel<Block, Gated<MoveArgs>, GatedMove<Block>>(),
    MakeKernel<Block, ReduceScatterArgs, ReduceScatter<Block>>(),
    MakeKernel<Block, Gated<ReduceScatterArgs>, GatedReduceScatter<Block>>(),
};

// Null if there is no kernel of that name.
template <class Block>
const Kernel<Block>* FindKernel(const char* name) {
  for (const Kernel<Block>& kernel : kKernels<Block>) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace collops::cuda
