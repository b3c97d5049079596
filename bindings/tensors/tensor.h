#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

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
  int index = -1;
  const char* name = nullptr;
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

// Reads an array of numpy or a tensor of torch whose values lie in order in memory of the CPU;
// false: any other object, or a tensor of pairs of numbers, which collops.torch may take for
// complex ones.
bool ReadInOrder(pybind11::handle object, Tensor* tensor);

// The kinds that files of their own read; `recognised` is false if the object is of another kind.
Status TorchToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                     bool* recognised);
// The stream follows what uses the memory, unless the call only looks at it or has no stream.
Status CudaMemoryToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                          CallStream* stream, bool* recognised);
Status DlpackToTensor(pybind11::handle object, const TensorName& name, Tensor* tensor,
                      CallStream* stream, bool* recognised);

// Sets shape and number of elements. That may wrap around: the checks refuse sizes that are too
// large.
void SetShape(const int64_t* sizes, int num_dims, Tensor* tensor);

// Whether an object of neither numpy nor torch says that it is in the memory of a GPU.
bool IsOnCuda(pybind11::handle object);

// Whether the object is a torch.Tensor or of a derived class, without importing torch.
bool IsTorchTensor(pybind11::handle object);

// Whether it is a numpy.ma.MaskedArray, whose memory does not contain the mask.
bool IsMasked(pybind11::handle object);

// Whether the object's class, or one that it is derived from, is of that package.
bool IsFrom(pybind11::handle object, const char* package);

// The collops.TensorDesc of a descriptor.
pybind11::object ToPython(const TensorDesc& desc);

pybind11::tuple ToTuple(const std::vector<int64_t>& sizes);

// New memory of the library and device of `like`, and of its element type, or of the one that
// `dtype` names.
pybind11::object MakeLike(const char* operation, pybind11::handle like,
                          const std::vector<int64_t>& sizes, const char* dtype = nullptr);

// How the results of calls with one kind of tensors are made, once the first has been.
class ResultMaker {
 public:
  // As MakeLike(), with the same sizes and type each time.
  pybind11::object Make(const char* operation, pybind11::handle like,
                        const std::vector<int64_t>& sizes, const char* dtype = nullptr);

 private:
  pybind11::object type_;  // of `like`
  pybind11::object make_;
};

// Memory of that many bytes from the library of `like`, a tensor on `device`, for work on `stream`.
pybind11::object MakeWorkspace(pybind11::handle like, const Device& device, uint64_t bytes,
                               const char* operation, void* stream);

}  // namespace collops::bindings
