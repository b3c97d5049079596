#pragma once

#include <cstdint>

#include "collops/core/dtype.h"

namespace bench {

// Multiplies and adds in registers only, `rounds` times, on this thread, with the instructions that
// a product of float32, bfloat16 or float16 uses on the current instruction set. Returns the number
// of multiplications and additions; divided by the time, it is the rate that no product can exceed.
// 0 for other dtypes.
int64_t RunArithmetic(collops::DType dtype, int64_t rounds);

}  // namespace bench
