// Sums that MPI's ways make by themselves: a reduction of bfloat16 for MPIs that have no such type,
// and one vectorised pass over blocks that were exchanged.
#pragma once

#include <cstdint>

#include "measure/point.h"

namespace bench::mpi_calls {

// into = into + other, rounded to bfloat16.
void AddBFloat16(const uint16_t* other, uint16_t* into, int64_t count);

// output = the sum of `num_blocks` blocks of `count` elements, which lie one behind the other. It
// is made in order and in float32, and rounded once.
void AddBlocks(DType dtype, const void* blocks, int num_blocks, int64_t count, void* output);

}  // namespace bench::mpi_calls
