#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace collops::kernels {

// Multiplies and adds in registers alone, `rounds` times, with the instructions that a product of
// float32, bfloat16 or float16 uses on the instruction set in use (isa.h), on this thread. Returns
// how many multiplications and additions that were; divided by the time it took, it is the rate
// that no product can exceed. 0 for other dtypes.
int64_t RunArithmetic(DType dtype, int64_t rounds);

}  // namespace collops::kernels
