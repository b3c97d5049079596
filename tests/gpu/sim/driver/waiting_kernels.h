#pragma once

#include <cstdint>

#include "../../cpp/kernels/kernel_table.h"
#include "collops/kernels/cuda/bodies/memory.h"

// Kernels that wait for signals, for tests of the simulation itself.
namespace collops_sim {

// Ends when *signal has reached `value`.
struct WaitArgs {
  static constexpr const char* kName = "sim_wait";
  const uint32_t* signal;
  uint32_t value;
};
template <class Block>
void Wait(const WaitArgs& args, Block& block) {
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    while (collops::cuda::LoadSignal(args.signal) < args.value) collops::cuda::Pause();
  });
}

// Ends when every block has come, which is wrong: no launch promises that all run at once, but a
// cooperative one. `came` has a word for each block.
struct MeetArgs {
  static constexpr const char* kName = "sim_meet";
  uint32_t* came;
};
template <class Block>
void Meet(const MeetArgs& args, Block& block) {
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    collops::cuda::StoreSignal(args.came + block.index(), uint32_t{1});
    for (uint32_t other = 0; other < block.count(); ++other) {
      while (collops::cuda::LoadSignal(args.came + other) == 0) collops::cuda::Pause();
    }
  });
}

template <class Block>
inline constexpr collops::cuda::Kernel<Block> kWaitingKernels[] = {
    collops::cuda::MakeKernel<Block, WaitArgs, Wait<Block>>(),
    collops::cuda::MakeKernel<Block, MeetArgs, Meet<Block>>(),
};

}  // namespace collops_sim
