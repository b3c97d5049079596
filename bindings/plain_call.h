#pragma once

#include <pybind11/pybind11.h>

#include "blocks.h"
#include "comm/communicator.h"
#include "tensor.h"

namespace collops::bindings {

// The two tensors of a call of the plain level, as they lie in memory.
struct PlainTensors {
  Tensor x;
  Tensor out;
};

// What the two operators of the plain level have in common: both tensors are whole, on the CPU and
// of one dtype, `out` may be written, and they have exactly x_count and out_count elements.
Status ToPlainTensors(pybind11::handle x, pybind11::handle out, const char* operation,
                      int64_t x_count, int64_t out_count, PlainTensors* tensors);

// `out` must not share memory with `x`, except that x may be `out`'s elements from `own_begin` on
// (-1: nowhere).
Status CheckApart(const PlainTensors& tensors, const char* operation, int64_t own_begin);

}  // namespace collops::bindings
