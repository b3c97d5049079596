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
};

// Names a tensor in messages: "all_gatherv: out[1]".
struct OperandName {
  const char* method;
  const char* label;

  std::string text() const { return Concat(method, ": ", label); }
};

// "x[1]"
std::string ItemOf(const char* label, size_t i);
// The tensors of a list; one without any is an error, as is a list of numbers.
std::vector<pybind11::object> TensorsOf(const char* method, const pybind11::object& list);
// Whether the ranks' blocks along x's dim lie one after the other in row-major memory.
bool IsInOrder(const RowShape& x, int rank_size);

// What a call reads. Of a tensor of another library on the CPU it is numpy's view.
Operand ReadInput(const OperandName& name, const pybind11::object& value, CallStream* stream);
// What a call writes.
Operand ReadOutput(const OperandName& name, const pybind11::object& value, CallStream* stream);
// As ReadOutput(), of that shape.
Operand ReadOutput(const OperandName& name, const pybind11::object& value, const Rows& shape,
                   CallStream* stream);

// Fills in how elements for which the core has no type travel: as that many bytes, by a name.
void NameElements(const OperandName& name, const Operand& x, RowShape* shape);
// The tensor is moved as bytes; `x` and `out` have one element type.
void MoveAsBytes(Operand* tensor);
void CheckSameElements(const char* method, const Operand& x, const Operand& out);

// New memory of the library, element type and device of `like`.
pybind11::object MakeLike(const char* method, const Operand& like, const Rows& shape);
// The same for the result of a call that is kept, whose way of making it is kept beside it.
pybind11::object MakeResult(const char* method, const Operand& like, PlainCalls::Kept* kept);

// `x`, or a copy in row-major order.
Operand InOrder(const OperandName& name, const Operand& x, CallStream* stream);
// Flat memory like `out`, which can take its values later.
Operand StagingFor(const OperandName& name, const Operand& out, CallStream* stream);

// Raises an error for a tensor that would have to be copied, which none but a library can.
[[noreturn]] void RefuseCopy(const OperandName& name, const Operand& tensor);

// The blocks of `whole`, one after the other along `dim`, as views.
std::vector<pybind11::object> BlocksOf(const pybind11::object& whole, const Rows& rows, int dim);
// Copies blocks with any strides one after the other into flat memory.
void PackBlocks(const std::vector<pybind11::object>& blocks, const pybind11::object& flat);
// Copies blocks that lie one after the other in `flat` to their places.
void UnpackBlocks(const pybind11::object& flat, const std::vector<pybind11::object>& blocks);

}  // namespace collops::bindings
