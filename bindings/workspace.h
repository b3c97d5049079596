#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "tensors/call_stream.h"

namespace collops::bindings {

// What Execute gets besides the tensors.
struct Scratch {
  void* workspace = nullptr;
  uint64_t bytes = 0;
  void* stream = nullptr;
  pybind11::object owner;  // of a workspace that was read through DLPack
};

// `workspace`: a tensor with writable memory, or None. `stream` has seen the tensors of the call.
Status ToScratch(pybind11::handle workspace, CallStream* stream, const VariantPack& pack,
                 const char* operation, Scratch* scratch);

// Memory of that many bytes from the library of `like`, a tensor on `device`, for work on `stream`;
// or why there is none, which the other ranks must hear.
Status DeviceMemory(pybind11::handle like, const Device& device, uint64_t bytes,
                    const char* operation, void* stream, pybind11::object* memory);

}  // namespace collops::bindings
