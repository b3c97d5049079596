#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "collops/core/status.h"
#include "collops/kernels/cuda/bodies/elementwise.h"
#include "collops/kernels/cuda/bodies/leaf_product.h"
#include "collops/kernels/cuda/bodies/reduction.h"
#include "collops/kernels/cuda/bodies/tree_sum.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/step.h"

namespace collops::cuda {

// Every kernel, by the name that its arguments have.
struct KernelKind {
  const char* name;
  int threads = 512;  // of a block
};
inline constexpr std::array kKernelKinds = {
    KernelKind{ReduceSlicesArgs::kName},
    KernelKind{ConvertArgs::kName},
    KernelKind{AddArgs::kName},
    KernelKind{ScaleArgs::kName},
    KernelKind{LeafProductArgs::kName, LeafProductArgs::kThreads},
    KernelKind{TreeSumArgs::kName},
    KernelKind{GateArgs::kName},
    KernelKind{MoveArgs::kName},
    KernelKind{MoveArgs::kGatedName},
    KernelKind{ReduceScatterArgs::kName},
    KernelKind{ReduceScatterArgs::kGatedName}};

// The kernels of one device, to be launched on its streams. Its context is the thread's current one
// in every call. A module is loaded once in a context, and stays there until the process ends.
// Load() may wait for the device; nothing else here waits. Thread-safe after Load().
class Kernels {
 public:
  explicit Kernels(const DriverApi& api) : api_(api) {}

  // Ok, or ERROR_UNSUPPORTED with the reason: the fatbin is missing.
  static Status Available();

  // Loads all kernels, and not one of them at its first launch: that could wait for kernels that
  // run, and these for the one to be launched.
  Status Load();

  // Of a block of most kernels; one that only waits has a thread for every rank, and takes no more
  // of the device.
  static constexpr int kThreads = KernelKind{}.threads;
  static constexpr int kWaitingThreads = kMostRanks;

  // Puts the kernel of these arguments on the stream, with blocks enough for `bytes` bytes of
  // output, and not more than the device runs at once.
  template <class Args>
  Status Launch(const Args& args, int64_t bytes, Stream stream) const {
    return LaunchBlocks(args, EnoughBlocks(Args::kName, bytes), stream);
  }
  // The same with so many blocks.
  template <class Args>
  Status LaunchBlocks(const Args& args, int blocks, Stream stream, int threads = kThreads) const {
    Args copy = args;  // the driver wants an address that it may write to, and copies from it
    return LaunchNamed(Args::kName, &copy, blocks, threads, stream);
  }
  // Blocks of that kernel that the device runs at once.
  int MostBlocks(const char* name) const;
  // Blocks that the kernels of a call may have on the device, together, if they wait for each other
  // and for other work there. See the function.
  int MostWaitingBlocks() const;

  // The kernels of one context.
  struct Table {
    struct Kernel {
      Function function = nullptr;
      int most_blocks = 1;
    };
    std::array<Kernel, kKernelKinds.size()> kernels;
    int multiprocessors = 1;
  };

 private:
  const Table::Kernel& Find(const char* name) const;
  int EnoughBlocks(const char* name, int64_t bytes) const;
  Status LaunchNamed(const char* name, void* args, int blocks, int threads, Stream stream) const;

  const DriverApi& api_;
  std::shared_ptr<const Table> table_;
};

}  // namespace collops::cuda
