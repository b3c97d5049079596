#include "collops/kernels/reduce/reduce.h"

#include <algorithm>
#include <cstring>

#include "collops/kernels/copy.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/reduce/reduce_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

// Bytes of the destination that one thread reduces at a time; a multiple of a cache line.
constexpr int64_t kPartBytes = 128 << 10;

// Calls body(begin, end) for parts of [0, count), in whole units of 16 elements.
template <typename Body>
void InUnits(int64_t count, int64_t element_bytes, const Body& body) {
  constexpr int64_t kUnit = 16;
  const int64_t parts = count * element_bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (parts == 1) return body(int64_t{0}, count);
  const int64_t units = count / kUnit;
  ParallelFor(static_cast<int>(parts), [&](int part) {
    body(units * part / parts * kUnit, units * (part + 1) / parts * kUnit);
  });
}

}  // namespace

const ReduceKernels& ActiveReduceKernels() {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return kAvx512ReduceKernels;
    case Isa::kAvx2:
      return kAvx2ReduceKernels;
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#endif
  return kPortableReduceKernels;
}

bool CanReduce(DType dtype, ReduceOp op) {
  return kPortableReduceKernels.reduce(dtype, op) != nullptr;
}

void Reduce(void* destination, const void* const* sources, int num_sources, int64_t count,
            DType dtype, ReduceOp op, int64_t whole_bytes, int divisor) {
  const ReduceKernel kernel = ActiveReduceKernels().reduce(dtype, op);
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

void RunningSum(float* sums, const float* before, const void* const* sources, int num_sources,
                int64_t count, DType dtype, ReduceOp op) {
  const RunningSumKernel kernel = ActiveReduceKernels().running_sum(dtype, op);
  const int64_t bytes = count * (num_sources * SizeOf(dtype) + 8);
  const int64_t parts = bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (parts == 1) return kernel(sums, before, sources, num_sources, 0, count);
  ParallelFor(static_cast<int>(parts), [&](int part) {
    kernel(sums, before, sources, num_sources, count * part / parts, count * (part + 1) / parts);
  });
}

void ToFloat32(DType dtype, const void* from, int64_t count, float* to) {
  if (count == 0) return;
  if (dtype == DType::kFloat32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    RunningSum(to, nullptr, &from, 1, count, dtype, ReduceOp::kSum);
  }
}

void WidenInt8(const void* from, int64_t count, void* to) {
  const WidenInt8Kernel kernel = ActiveReduceKernels().widen_int8;
  InUnits(count, 5, [&](int64_t begin, int64_t end) {
    kernel(static_cast<char*>(to) + 4 * begin, static_cast<const char*>(from) + begin, end - begin);
  });
}

void ScaleSums(const void* sums, int64_t count, float shift, const void* scales, int64_t num_scales,
               void* out) {
  const ScaleSumsKernel kernel = ActiveReduceKernels().scale_sums;
  const bool has_one = num_scales == 1;
  InUnits(count, 6, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t column = has_one ? 0 : begin % num_scales;
      const int64_t length = has_one ? end - begin : std::min(end - begin, num_scales - column);
      kernel(static_cast<char*>(out) + 2 * begin, static_cast<const char*>(sums) + 4 * begin, shift,
             static_cast<const char*>(scales) + 2 * column, has_one, length);
      begin += length;
    }
  });
}

void StoreSum(DType dtype, const float* const* partials, int num_partials, int64_t ld_partial,
              const void* residual, int64_t rows, int64_t columns, void* out, int64_t ld_out,
              float divisor, const SumTree* tree) {
  const StoreSumKernel kernel = ActiveReduceKernels().store_sum(dtype);
  const auto store = [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernel(partials, num_partials, tree == nullptr ? nullptr : tree->data(), row * ld_partial,
             divisor, residual, columns, static_cast<char*>(out) + row * ld_out * SizeOf(dtype));
    }
  };
  const int64_t bytes = rows * columns * (num_partials * 4 + SizeOf(dtype));
  const int threads = bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (threads == 1) return store(0, rows);
  ParallelFor(threads,
              [&](int part) { store(rows * part / threads, rows * (part + 1) / threads); });
}

}  // namespace collops::kernels
