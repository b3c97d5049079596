#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "collops/operators/plain/plain_calls.h"
#include "tensors/tensor.h"

namespace collops::bindings {

// A tensor of a call of the plain level: of numpy, torch or CuPy, or one of a GPU that is known by
// its protocols alone, which the core reads and nobody else.
struct Operand {
  enum Library { kNumpy, kTorch, kCupy, kOther };

  pybind11::object object;
  Library made_by = kNumpy;
  Tensor tensor;
  Rows sizes;      // of all dims
  Status problem;  // why the core cannot use a tensor of torch as it is; a copy of it may do
  bool is_packed = false;  // the ranks' blocks lie one after the other, whatever the dim
};

// The tensors of the list x; one without any is an error, as is a list of numbers.
std::vector<pybind11::object> TensorsOf(const char* method, const pybind11::object& list);

// What a call reads. Of a tensor of another library on the CPU it is numpy's view.
Operand ReadInput(const TensorName& name, const pybind11::object& value, CallStream* stream);
// What a call writes.
Operand ReadOutput(const TensorName& name, const pybind11::object& value, CallStream* stream);
// As ReadOutput(), of that shape.
Operand ReadOutput(const TensorName& name, const pybind11::object& value, const Rows& shape,
                   CallStream* stream);

// Tensor i of a list has the element type of the first one, and its shape.
void CheckLikeFirst(const TensorName& list, const Operand& first, const Operand& tensor, size_t i);

// Fills in how elements for which the core has no type travel: as that many bytes, by a name.
void NameElements(const TensorName& name, const Operand& x, RowShape* shape);
// The tensor is moved as bytes; `x` and `out` have one element type.
void MoveAsBytes(Operand* tensor);
void CheckSameElements(const char* method, const Operand& x, const Operand& out);

// `x`, or a copy in row-major order.
Operand InOrder(const TensorName& name, const Operand& x, CallStream* stream);
// Flat memory like `out`, which can take its values later.
Operand StagingFor(const TensorName& name, const Operand& out, CallStream* stream);
// One block per rank, copied one after the other into one tensor; fills in the call's x and sizes.
Operand Joined(const std::vector<Operand>& blocks, PlainCall* call, CallStream* stream);
// A copy of `x` in which the blocks along the call's dim lie one after the other.
Operand Packed(const PlainCall& call, const Operand& x, const Rows& rows, CallStream* stream);

// The blocks of `whole`, one after the other along `dim`, as views.
std::vector<pybind11::object> BlocksOf(const pybind11::object& whole, const Rows& rows, int dim);
// Copies blocks that lie one after the other in `flat` to their places.
void UnpackBlocks(const pybind11::object& flat, const std::vector<pybind11::object>& blocks);

}  // namespace collops::bindings
