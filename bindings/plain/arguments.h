#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "collops/core/dtype.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops::bindings {

// Arguments of the plain level that are no tensors. `method` and `label` name them in messages;
// each function raises ArgumentError for what it cannot read.

// A number that int64_t holds, of anything that Python takes as an index.
int64_t ReadWhole(const char* method, const std::string& label, pybind11::handle value);

// One number per rank: a list, an array or a tensor.
Rows ReadSizes(const char* method, const char* label, pybind11::handle value);
// One number per member of a group.
Rows ReadMembers(const char* method, const char* label, pybind11::handle value);
Rows ReadRanks(const char* method, const char* label, pybind11::handle value);

// Lines of numbers, one line per rank and all equally long, one line after the other: lists of
// lists, an array or a tensor.
Rows ReadTable(const char* method, const char* label, pybind11::handle value);

// A reduction by the core's name or as a member of torch.distributed.ReduceOp; `only_sums`: sum or
// avg.
ReduceOp ReadReduction(const char* method, const pybind11::object& value, bool only_sums = false);

// An element type that the core knows: its name, or numpy's, torch's or ml_dtypes' type.
DType ReadDType(const char* method, const char* label, pybind11::handle value);

// Whether it is a list or a tuple.
bool IsList(pybind11::handle object);

// repr(), and the name of its class.
std::string Repr(pybind11::handle object);
std::string TypeNameOf(pybind11::handle object);

}  // namespace collops::bindings
