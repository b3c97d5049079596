#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda_peers {

// A part of a slab: its address here, and where it is for other processes.
struct SlabPart {
  cuda::DevicePointer pointer = 0;
  cuda::DevicePointer slab = 0;
  int64_t bytes = 0;
  cuda::IpcMemoryHandle handle = {};  // of the slab
};

// Memory that kernels and the host share: `host` and `device` are the same bytes.
struct SharedPart {
  void* host = nullptr;
  cuda::DevicePointer device = 0;
};

// The memory of this process's communicators. It is taken from a GPU in large slabs, which are
// never freed, because that would wait for the GPU; and neither are other processes' slabs closed.
// So a communicator seldom calls the driver for it; before such a call `before` waits until it may.
// Thread-safe; the GPU's context is the thread's current one.
class Slabs {
 public:
  using Before = std::function<Status()>;

  static Status Take(const cuda::DriverApi& driver, int device, int64_t bytes, const Before& before,
                     SlabPart* part);
  static void GiveBack(int device, const SlabPart& part);

  static Status TakeShared(const cuda::DriverApi& driver, int64_t bytes, const Before& before,
                           SharedPart* part);
  static void GiveBackShared(int64_t bytes, const SharedPart& part);

  // The address here of another process's slab. `key` names that process, its slab and this device.
  static Status Open(const cuda::DriverApi& driver, const std::string& key,
                     const cuda::IpcMemoryHandle& handle, const Before& before,
                     cuda::DevicePointer* slab);
};

}  // namespace collops::cuda_peers
