#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/plain/plain_tensors.h"

namespace collops::bindings {

// Which tensor of a call is meant, for messages. `label` and `index` are put together only when
// there is something to say: "AllGatherV: input 0 (x)", or "all_gatherv: out" without an index.
struct TensorName {
  const char* operation;
  const char* label;
  int index;
  const char* name;
};

std::string ToString(const TensorName& name);

// A Python tensor as the core sees it. The Python object owns the memory; of one that was read
// through DLPack, `owner` does.
struct Tensor : PlainTensor {
  pybind11::object owner;
};

// The one conversion from Python: a numpy array, a torch tensor, a collops.TensorDesc (no memory),
// collops.with_format() around one of them, or anything with __dlpack__, read-only. Says nothing
// about whether the tensor is usable, which the operator checks; anything else is
// ERROR_INVALID_PARAM.
Status ToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor);

// The kinds. Each returns false through `recognised` when the object is of another kind.
Status NumpyToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
Status TorchToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
Status DescToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                    bool* recognised);
Status DlpackToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                      bool* recognised);

// collops.TensorDesc of a descriptor.
pybind11::object ToPython(const TensorDesc& desc);

}  // namespace collops::bindings
