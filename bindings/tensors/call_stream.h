#pragma once

#include <pybind11/pybind11.h>

#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace collops::bindings {

// The stream of one call: the one that the caller passed, or the current one of the library that
// made the call's first tensor on a device. Needs the GIL; the tensors stay alive as long as it
// does.
class CallStream {
 public:
  CallStream() = default;
  // `passed`: a stream's number, an object that has one (torch.npu.Stream, torch.cuda.Stream,
  // CuPy's, or with __cuda_stream__), or None.
  explicit CallStream(pybind11::handle passed) : passed_(passed) {}

  // Says that nothing of the call is put on the stream.
  void OnlyLook() { only_looks_ = true; }
  bool only_looks() const { return only_looks_; }

  // Takes the tensors of the call, in their order.
  void See(pybind11::handle tensor, const Device& device) {
    const bool has_streams = device.kind == DeviceKind::kNpu || device.kind == DeviceKind::kCuda;
    if (!has_streams || tensor_) return;
    tensor_ = tensor;
    device_ = device;
  }
  // Of the tensors that were seen so far. Null on the CPU, if none was passed; never null on CUDA,
  // where the number 0 means the legacy default stream.
  Status Find(const char* operation, void** stream);

 private:
  pybind11::handle passed_;
  pybind11::handle tensor_;
  Device device_;
  void* stream_ = nullptr;
  bool found_ = false;
  bool only_looks_ = false;
};

// The current stream of a call on this device that has no tensors: torch's where the program uses
// torch there, else CuPy's, else the null stream. Null on the CPU.
Status CurrentStream(const Device& device, const char* operation, void** stream);

}  // namespace collops::bindings
