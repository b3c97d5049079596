#include "kernels/reduce.h"

#include "kernels/reduce_kernels.h"

namespace collops::kernels {

bool CanReduce(DType dtype, ReduceOp op) {
  return PortableReduceKernel(dtype, op) != nullptr;
}

void Reduce(void* destination, const void* const* sources, int num_sources, int64_t count,
            DType dtype, ReduceOp op) {
  PortableReduceKernel(dtype, op)(destination, sources, num_sources, count);
}

}  // namespace collops::kernels
