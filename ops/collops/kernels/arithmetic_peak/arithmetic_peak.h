#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace collops::kernels {

// Multiplies and adds in registers only, `rounds` times, on this thread, with the instructions that
// a product of float32, bfloat16 or float16 uses on the current instruction set (isa.h). Returns
// the number of multiplications and additions; divided by the time, it is the rate that no product
// can exceed. 0 for other dtypes.
int64_t RunArithmetic(DType dtype, int64_t rounds);

}  // namespace collops::kernels
