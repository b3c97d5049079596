#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/plain/plain_tensors.h"

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

// The one conversion from Python, of: a numpy array, a torch tensor, a collops.TensorDesc (no
// memory), collops.with_format() around one of them, or anything with __dlpack__ (read-only). Does
// not check whether the tensor is usable: the operator does. Any other object is
// ERROR_INVALID_PARAM.
Status ToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor);

// The status with Python's word for the element type of `tensor`, for which the core has none.
Status NameElementType(const Status& status, pybind11::handle tensor);

// One function per kind; `recognised` is false if the object is of another kind.
Status NumpyToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
Status TorchToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
Status DescToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                    bool* recognised);
Status DlpackToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                      bool* recognised);

// The collops.TensorDesc of a descriptor.
pybind11::object ToPython(const TensorDesc& desc);

}  // namespace collops::bindings
