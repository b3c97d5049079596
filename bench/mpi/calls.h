// The ways in which an MPI makes the calls. All of them take uneven counts as they are.
#pragma once

#include "measure/measure.h"

namespace bench::mpi_calls {

// The ways to make `op` with such elements:
//   native        MPI's own function and type; a gather of bfloat16 moves MPI_UINT16_T
//   user_op       the same with a vectorised MPI_Op of ours (reductions of bfloat16)
//   exchange_add  MPI_Alltoallv and one vectorised pass of additions (reduce_scatter_v)
// Called between MPI_Init and MPI_Finalize, by all ranks.
std::vector<Way> Ways(Operator op, DType dtype);

}  // namespace bench::mpi_calls
