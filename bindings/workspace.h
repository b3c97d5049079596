#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "core/status.h"
#include "core/tensor.h"

namespace collops::bindings {

// What Execute gets besides the tensors.
struct Scratch {
  void* workspace = nullptr;
  uint64_t bytes = 0;
  void* stream = nullptr;
};

// `workspace`: a tensor with writable memory, or None. `stream`: a device stream's number, an
// object with one (torch.npu.Stream, torch.cuda.Stream), or None: then torch's current stream of
// the first tensor on an NPU.
Status ToScratch(pybind11::handle workspace, pybind11::handle stream, const VariantPack& pack,
                 const char* operation, Scratch* scratch);

// Memory of that many bytes from torch, on the device of `like`, a torch tensor. Raises torch's
// error.
pybind11::object DeviceMemory(pybind11::handle like, uint64_t bytes);

// The stream of a call with tensors on this device: torch's current one on an NPU, null on the CPU.
Status StreamOf(const Device& device, const char* operation, void** stream);

}  // namespace collops::bindings
