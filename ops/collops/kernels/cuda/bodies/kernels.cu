// The kernels: one for each body, by the name that its arguments have. Compiled by nvcc into
// collops_kernels.fatbin.
#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/bodies/leaf_product.h"
#include "collops/kernels/cuda/bodies/reduction.h"
#include "collops/kernels/cuda/bodies/tree_sum.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/cuda/peers/step.h"

namespace collops::cuda {

extern "C" __global__ void __launch_bounds__(512)
    collops_reduce_slices(const __grid_constant__ ReduceSlicesArgs args) {
  DeviceBlock block;
  ReduceSlices(args, block);
}

extern "C" __global__ void __launch_bounds__(512)
    collops_convert(const __grid_constant__ ConvertArgs args) {
  DeviceBlock block;
  Convert(args, block);
}

extern "C" __global__ void __launch_bounds__(512)
    collops_add(const __grid_constant__ AddArgs args) {
  DeviceBlock block;
  Add(args, block);
}

extern "C" __global__ void __launch_bounds__(512)
    collops_scale(const __grid_constant__ ScaleArgs args) {
  DeviceBlock block;
  Scale(args, block);
}

// Two blocks are on a multiprocessor: one multiplies where the other one waits for its threads.
extern "C" __global__ void __launch_bounds__(LeafProductArgs::kThreads, 2)
    collops_leaf_product(const __grid_constant__ LeafProductArgs args) {
  DeviceBlock block;
  LeafProduct(args, block);
}

extern "C" __global__ void __launch_bounds__(512)
    collops_tree_sum(const __grid_constant__ TreeSumArgs args) {
  DeviceBlock block;
  TreeSum(args, block);
}

extern "C" __global__ void __launch_bounds__(512)
    collops_gate(const __grid_constant__ GateArgs args) {
  DeviceBlock block;
  Gate(args, block);
}

// Two blocks of what moves data are on a multiprocessor, so that the kernels of two communicators,
// which wait for their peers, are there at the same time.
extern "C" __global__ void __launch_bounds__(512, 2)
    collops_move(const __grid_constant__ MoveArgs args) {
  DeviceBlock block;
  Move(args, block);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    collops_gated_move(const __grid_constant__ Gated<MoveArgs> args) {
  DeviceBlock block;
  GatedMove(args, block);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    collops_reduce_scatter(const __grid_constant__ ReduceScatterArgs args) {
  DeviceBlock block;
  ReduceScatter(args, block);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    collops_gated_reduce_scatter(const __grid_constant__ Gated<ReduceScatterArgs> args) {
  DeviceBlock block;
  GatedReduceScatter(args, block);
}

}  // namespace collops::cuda
