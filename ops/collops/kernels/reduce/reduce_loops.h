#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "collops/core/dtype.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce_elements.h"
#include "collops/kernels/reduce/reduce_kernels.h"

// The loops of a reduction. A Machine defines the size of its vectors (kVectorBytes), how many of
// them a step takes (kInFlight, found by measuring), how they are stored past the caches (kStreams,
// Stream, Fence), and its Float16.
namespace collops::kernels {
namespace {

using One = std::make_index_sequence<1>;

// Far enough ahead for data that comes from another core's cache.
constexpr int64_t kPrefetchBytes = 4096;

template <typename Element, size_t... kIndex>
void Prefetch(const char* source, std::index_sequence<kIndex...>) {
  constexpr int64_t kBytes = sizeof...(kIndex) * sizeof(typename Element::Raw);
  if constexpr (Element::kPrefetch) {
    for (int64_t line = 0; line < kBytes; line += kLineBytes) {
      __builtin_prefetch(source + kPrefetchBytes + line);
    }
  }
}

// One vector per index, each `offset` bytes into every buffer. All are read before any is written,
// because the destination may be a source.
template <typename Element, typename Op, typename Access, size_t... kIndex>
void ReduceStep(Access access, char* destination, const void* const* sources, int num_sources,
                int divisor, int64_t offset, std::index_sequence<kIndex...> indices) {
  using Raw = typename Element::Raw;
  const auto load = [&](const char* source, size_t index) {
    return Element::Widen(access.template Load<Raw>(source + index * sizeof(Raw)));
  };
  const char* source = static_cast<const char*>(sources[0]) + offset;
  Prefetch<Element>(source, indices);
  typename Element::Sum sums[] = {load(source, kIndex)...};
  for (int rank = 1; rank < num_sources; ++rank) {
    source = static_cast<const char*>(sources[rank]) + offset;
    Prefetch<Element>(source, indices);
    ((sums[kIndex] = Combine<Op>(sums[kIndex], load(source, kIndex))), ...);
  }
  if constexpr (kDivides<Op>) {
    ((sums[kIndex] = Op::Divide(sums[kIndex], divisor)), ...);
  }
  char* const target = destination + offset;
  (access.Store(target + kIndex * sizeof(Raw), Element::Narrow(sums[kIndex])), ...);
}

// As many whole steps of `indices` vectors as fit into [offset, end); returns where they end.
template <typename Element, typename Op, typename Access, typename Indices>
int64_t ReduceSteps(Access access, char* destination, const void* const* sources, int num_sources,
                    int divisor, int64_t offset, int64_t end, Indices indices) {
  constexpr int64_t kStep = Indices::size() * sizeof(typename Element::Raw);
  for (; end - offset >= kStep; offset += kStep) {
    ReduceStep<Element, Op>(access, destination, sources, num_sources, divisor, offset, indices);
  }
  return offset;
}

// Bytes up to the first address to which a whole vector can be streamed; -1 if no element begins
// there.
template <typename Element>
int64_t BytesToAligned(const char* address) {
  constexpr int64_t kVectorBytes = sizeof(typename Element::Raw);
  const int64_t bytes = -reinterpret_cast<intptr_t>(address) & (kVectorBytes - 1);
  return bytes % static_cast<int64_t>(sizeof(typename Element::Stored)) == 0 ? bytes : -1;
}

// The ReduceKernel of one element type and operation.
template <typename Machine, typename Element, typename Op>
void ReduceRange(void* destination, const void* const* sources, int num_sources, int divisor,
                 int64_t begin, int64_t end, bool stream) {
  using Some = std::make_index_sequence<Machine::kInFlight>;
  constexpr int64_t kElementBytes = sizeof(typename Element::Stored);
  char* const output = static_cast<char*>(destination);
  int64_t done = begin * kElementBytes;
  const int64_t end_bytes = end * kElementBytes;
  const auto steps = [&](auto access, auto indices) {
    done = ReduceSteps<Element, Op>(access, output, sources, num_sources, divisor, done, end_bytes,
                                    indices);
  };
  const auto part = [&](int64_t bytes) {
    if (bytes == 0) return;
    ReduceStep<Element, Op>(Part{static_cast<size_t>(bytes)}, output, sources, num_sources, divisor,
                            done, One{});
    done += bytes;
  };
  if constexpr (Machine::kStreams) {
    const int64_t head = stream ? BytesToAligned<Element>(output + done) : -1;
    if (head >= 0 && head <= end_bytes - done) {
      part(head);
      steps(Streamed<Machine>{}, Some{});
      Machine::Fence();
    }
  }
  steps(Whole{}, Some{});
  steps(Whole{}, One{});
  part(end_bytes - done);
}

// For max and min, which may need another element type and operation.
template <typename Machine, typename Element, template <bool> typename Extreme, typename Greatest,
          typename Least>
ReduceKernel FloatingKernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceRange<Machine, Element, Add>;
    case ReduceOp::kProd:
      return ReduceRange<Machine, Element, Multiply>;
    case ReduceOp::kMax:
      return ReduceRange<Machine, Extreme<true>, Greatest>;
    case ReduceOp::kMin:
      return ReduceRange<Machine, Extreme<false>, Least>;
    case ReduceOp::kAvg:
      return ReduceRange<Machine, Element, Mean>;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return nullptr;
  }
  return nullptr;
}

// T is signed or unsigned, which matters for max, min and the division of avg.
template <typename Machine, typename T>
ReduceKernel IntegerKernel(ReduceOp op) {
  using Element = Plain<T, Machine::kVectorBytes>;
  using Wrapping = Plain<std::make_unsigned_t<T>, Machine::kVectorBytes>;
  switch (op) {
    case ReduceOp::kSum:
      return ReduceRange<Machine, Wrapping, Add>;
    case ReduceOp::kProd:
      return ReduceRange<Machine, Wrapping, Multiply>;
    case ReduceOp::kMax:
      return ReduceRange<Machine, Element, Greater>;
    case ReduceOp::kMin:
      return ReduceRange<Machine, Element, Less>;
    case ReduceOp::kAvg:
      return ReduceRange<Machine, Wrapping, IntegerMean<T>>;
    case ReduceOp::kBitAnd:
      return ReduceRange<Machine, Wrapping, And>;
    case ReduceOp::kBitOr:
      return ReduceRange<Machine, Wrapping, Or>;
    case ReduceOp::kBitXor:
      return ReduceRange<Machine, Wrapping, Xor>;
  }
  return nullptr;
}

// The Machine's kernel for the pair; null if the pair is not reduced.
template <typename Machine>
class Kernels {
 public:
  static ReduceKernel Find(DType dtype, ReduceOp op) {
    switch (dtype) {
      case DType::kFloat32:
        return FloatingKernel<Machine, Plain<float, kBytes>, ExtremeFloat32, Maximum, Minimum>(op);
      case DType::kFloat64:
        return FloatingKernel<Machine, Plain<double, kBytes>, ExtremeFloat64, Maximum, Minimum>(op);
      case DType::kFloat16:
        return FloatingKernel<Machine, typename Machine::Float16, OrderedFloat16, Greater, Less>(
            op);
      case DType::kBFloat16:
        return FloatingKernel<Machine, BFloat16<kBytes>, OrderedBFloat16, Greater, Less>(op);
      case DType::kInt8:
        return IntegerKernel<Machine, int8_t>(op);
      case DType::kUInt8:
        return IntegerKernel<Machine, uint8_t>(op);
      case DType::kInt16:
        return IntegerKernel<Machine, int16_t>(op);
      case DType::kUInt16:
        return IntegerKernel<Machine, uint16_t>(op);
      case DType::kInt32:
        return IntegerKernel<Machine, int32_t>(op);
      case DType::kUInt32:
        return IntegerKernel<Machine, uint32_t>(op);
      case DType::kInt64:
        return IntegerKernel<Machine, int64_t>(op);
      case DType::kUInt64:
        return IntegerKernel<Machine, uint64_t>(op);
      case DType::kUndefined:
      case DType::kBool:
      case DType::kComplex32:
      case DType::kComplex64:
      case DType::kComplex128:
        return nullptr;
    }
    return nullptr;
  }

 private:
  static constexpr int kBytes = Machine::kVectorBytes;
  template <bool kMaximum>
  using ExtremeFloat64 = Extreme<double, uint64_t, kMaximum, kBytes>;
  template <bool kMaximum>
  using ExtremeFloat32 = Extreme<float, uint32_t, kMaximum, kBytes>;
  template <bool kMaximum>
  using OrderedFloat16 = OrderedHalf<0x7c00, kMaximum, kBytes>;
  template <bool kMaximum>
  using OrderedBFloat16 = OrderedHalf<0x7f80, kMaximum, kBytes>;
};

}  // namespace
}  // namespace collops::kernels
