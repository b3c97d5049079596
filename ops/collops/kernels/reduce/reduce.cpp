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

// Adds up summands of one type by a tree, a few elements at a time, so that sums stay in a cache.
class TreeSums {
 public:
  static constexpr int64_t kElements = 2048;

  TreeSums(DType from, DType to)
      : from_(from),
        to_(to),
        summed_(SummedAs(to)),
        kernels_(ActiveReduceKernels()),
        add_(kernels_.reduce(summed_, ReduceOp::kSum)),
        widen_(from == summed_ ? nullptr : kernels_.running_sum(from, ReduceOp::kSum)) {}

  // Elements [begin, end) of one root, which is all that the summands add up to.
  void Add(const void* const* summands, const uint8_t* tree, int64_t num_summands, int64_t begin,
           int64_t end, void* sum) {
    const int64_t count = end - begin;
    int depth = 0;
    for (int64_t i = 0; i < num_summands; ++i) {
      const void* part = At(summands[i], begin, from_);
      if (widen_ != nullptr) {
        widen_(reinterpret_cast<float*>(Slot(depth)), nullptr, &part, 1, 0, count);
        part = Slot(depth);
      }
      waiting_[depth++] = part;
      for (int added = 0; added < tree[i]; ++added) {
        --depth;
        add_(Slot(depth - 1), waiting_ + depth - 1, 2, 2, 0, count, false);
        waiting_[depth - 1] = Slot(depth - 1);
      }
    }
    void* const out = const_cast<void*>(At(sum, begin, to_));
    if (to_ == summed_) {
      std::memmove(out, waiting_[0], static_cast<size_t>(count * SizeOf(to_)));
    } else {
      const auto* const total = static_cast<const float*>(waiting_[0]);
      kernels_.store_sum(to_)(&total, 1, nullptr, 0, 1.0F, nullptr, count, out);
    }
  }

 private:
  static const void* At(const void* data, int64_t element, DType dtype) {
    return static_cast<const char*>(data) + element * SizeOf(dtype);
  }
  char* Slot(int depth) { return slots_ + depth * kSlotBytes; }

  // Not a multiple of a page: loads from one slot would wait for stores to the next.
  static constexpr int64_t kSlotBytes = kElements * int64_t{sizeof(double)} + 3 * 64;

  const DType from_;
  const DType to_;
  const DType summed_;
  const ReduceKernels& kernels_;
  const ReduceKernel add_;
  const RunningSumKernel widen_;
  const void* waiting_[kMostWaitingSums + 1];
  alignas(64) char slots_[(kMostWaitingSums + 1) * kSlotBytes];
};

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

DType SummedAs(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

void SumByTree(DType from, const void* const* summands, const SumTree& tree, int64_t count,
               DType to, void* const* sums) {
  // Where the summands of each root begin.
  const auto num_summands = static_cast<int64_t>(tree.size());
  std::vector<int64_t> begins = {num_summands};
  int64_t missing = 0;  // summands of the root at whose end it is
  for (int64_t i = num_summands - 1; i >= 0; --i) {
    missing = std::max<int64_t>(missing, 1) + tree[static_cast<size_t>(i)] - 1;
    if (missing == 0) begins.push_back(i);
  }
  std::reverse(begins.begin(), begins.end());
  const auto add = [&](int64_t begin, int64_t end) {
    TreeSums parts(from, to);
    for (int64_t first = begin; first < end; first += TreeSums::kElements) {
      const int64_t last = std::min(first + TreeSums::kElements, end);
      for (size_t root = 0; root + 1 < begins.size(); ++root) {
        parts.Add(summands + begins[root], tree.data() + begins[root],
                  begins[root + 1] - begins[root], first, last, sums[root]);
      }
    }
  };
  const int64_t bytes = count * (num_summands * SizeOf(from) + SizeOf(to));
  const int64_t threads = bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (threads == 1) return add(0, count);
  ParallelFor(static_cast<int>(threads),
              [&](int part) { add(count * part / threads, count * (part + 1) / threads); });
}

}  // namespace collops::kernels
