#include "collops/kernels/store_sum/store_sum.h"

#include <algorithm>

#include "collops/kernels/isa.h"
#include "collops/kernels/store_sum/store_sum_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

StoreSumKernel FindKernel(DType dtype) {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return Avx512StoreSumKernel(dtype);
    case Isa::kAvx2:
      return Avx2StoreSumKernel(dtype);
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#endif
  return PortableStoreSumKernel(dtype);
}

}  // namespace

void StoreSum(DType dtype, const float* const* partials, int num_partials, int64_t ld_partial,
              const void* residual, int64_t rows, int64_t columns, void* out, int64_t ld_out,
              float divisor) {
  const StoreSumKernel kernel = FindKernel(dtype);
  const auto store = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernel(partials, num_partials, row * ld_partial, divisor, residual, columns,
             static_cast<char*>(out) + row * ld_out * SizeOf(dtype));
    }
  };
  const int64_t bytes = rows * columns * (num_partials * 4 + SizeOf(dtype));
  const int threads = bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (threads == 1) return store(0, rows);
  ParallelFor(threads,
              [&](int part) { store(rows * part / threads, rows * (part + 1) / threads); });
}

}  // namespace collops::kernels
