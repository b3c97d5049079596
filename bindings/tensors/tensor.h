#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/operators/plain/plain_tensors.h"
#include "tensors/call_stream.h"

namespace collops::bindings {

// Names a tensor of a call in messages: "AllGatherV: input 0 (x)", or "all_gatherv: out" without an
// index. The text is made only when a message needs it.
struct TensorName {
  const char* operation;
  const char* label;
  int index;
  const char* name;
};

std::string ToString(const TensorName& name);

// A Python tensor as the core sees it. The Python object owns the memory; for a tensor that was
// read through DLPack, `owner` does.
struct Tensor : PlainTensor {
  pybind11::object owner;
};

// The one conversion from Python, of: a numpy array, a torch tensor, a collops.CudaArray, a
// collops.TensorDesc (no memory), collops.with_format() around one of them, or anything with
// __dlpack__ (on the CPU: read-only) or __cuda_array_interface__. Does not check whether the tensor
// is usable: the operator does. Any other object is ERROR_INVALID_PARAM. `stream` is that of the
// call, which the tensor's memory is ordered before; null: that of the tensor alone.
Status ToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                CallStream* stream = nullptr);

// The status with Python's word for the element type of `tensor`, for which the core has none.
Status NameElementType(const Status& status, pybind11::handle tensor);

// One function per kind; `recognised` is false if the object is of another kind.
Status NumpyToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
Status TorchToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
// The stream follows what uses the memory, unless the call only looks at it or has no stream.
Status CudaMemoryToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                          CallStream* stream, bool* recognised);
Status DescToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                    CallStream* stream, bool* recognised);
Status DlpackToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                      CallStream* stream, bool* recognised);

// Whether an object of neither numpy nor torch says that it is in the memory of a GPU.
bool IsOnCuda(pybind11::handle object);

// Whether the object is a torch.Tensor or of a derived class, without importing torch.
bool IsTorchTensor(pybind11::handle object);

// Whether the object's class, or one that it is derived from, is of that package.
bool IsFrom(pybind11::handle object, const char* package);

// The collops.TensorDesc of a descriptor.
pybind11::object ToPython(const TensorDesc& desc);

}  // namespace collops::bindings
