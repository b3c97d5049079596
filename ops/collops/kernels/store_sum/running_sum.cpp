#include "collops/kernels/store_sum/running_sum.h"

#include <algorithm>

#include "collops/kernels/isa.h"
#include "collops/kernels/store_sum/running_sum_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

RunningSumKernel FindKernel(DType dtype, ReduceOp op) {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return Avx512RunningSumKernel(dtype, op);
    case Isa::kAvx2:
      return Avx2RunningSumKernel(dtype, op);
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#endif
  return PortableRunningSumKernel(dtype, op);
}

}  // namespace

void RunningSum(float* sums, const float* before, const void* const* sources, int num_sources,
                int64_t count, DType dtype, ReduceOp op) {
  const RunningSumKernel kernel = FindKernel(dtype, op);
  const int64_t bytes = count * (num_sources * SizeOf(dtype) + 8);
  const int64_t parts = bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (parts == 1) return kernel(sums, before, sources, num_sources, 0, count);
  ParallelFor(static_cast<int>(parts), [&](int part) {
    kernel(sums, before, sources, num_sources, count * part / parts, count * (part + 1) / parts);
  });
}

}  // namespace collops::kernels
