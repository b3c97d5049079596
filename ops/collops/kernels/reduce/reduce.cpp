#include "collops/kernels/reduce/reduce.h"

#include <algorithm>

#include "collops/kernels/copy/streaming.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/reduce/reduce_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

ReduceKernel FindKernel(DType dtype, ReduceOp op) {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return Avx512ReduceKernel(dtype, op);
    case Isa::kAvx2:
      return Avx2ReduceKernel(dtype, op);
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#endif
  return PortableReduceKernel(dtype, op);
}

// Bytes of the destination that one thread reduces at a time; a multiple of a cache line.
constexpr int64_t kPartBytes = 128 << 10;

}  // namespace

bool CanReduce(DType dtype, ReduceOp op) {
  return PortableReduceKernel(dtype, op) != nullptr;
}

void Reduce(void* destination, const void* const* sources, int num_sources, int64_t count,
            DType dtype, ReduceOp op, int64_t whole_bytes, int divisor) {
  const ReduceKernel kernel = FindKernel(dtype, op);
  const int64_t bytes = count * SizeOf(dtype);
  if (divisor == 0) divisor = num_sources;
  const bool stream = std::max(whole_bytes, bytes) >= StreamedOutputBytes();
  if (bytes * (num_sources + 1) < kLeastSharedBytes || NumThreads() == 1) {
    kernel(destination, sources, num_sources, divisor, 0, count, stream);
    return;
  }
  const int64_t part_count = kPartBytes / SizeOf(dtype);
  ParallelFor(static_cast<int>((count + part_count - 1) / part_count), [&](int part) {
    const int64_t begin = part * part_count;
    const int64_t end = std::min(begin + part_count, count);
    kernel(destination, sources, num_sources, divisor, begin, end, stream);
  });
}

}  // namespace collops::kernels
