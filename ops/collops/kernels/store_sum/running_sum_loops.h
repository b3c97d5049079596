#pragma once

#include <cstdint>

#include "collops/kernels/store_sum/running_sum_kernels.h"
#include "collops/kernels/store_sum/store_sum_loops.h"

// The loops of RunningSum(), on the vectors and conversions of StoreSum().
namespace collops::kernels {
namespace {

// One vector; `access` and `stored_access` are Whole, or Part of the same elements.
template <typename Machine, typename Element, typename Op, typename Access>
void RunVector(float* sums, const float* before, const void* const* sources, int num_sources,
               int64_t index, Access access, Access stored_access) {
  using Sum = SumVector<Machine>;
  const auto load = [&](int i) {
    const char* const source = static_cast<const char*>(sources[i]) + index * 2;
    return Element::Widen(stored_access.template Load<typename Element::Stored>(source));
  };
  Sum sum = before == nullptr
                ? load(0)
                : access.template Load<Sum>(reinterpret_cast<const char*>(before + index));
  for (int i = before == nullptr ? 1 : 0; i < num_sources; ++i) sum = Op::Apply(sum, load(i));
  access.Store(reinterpret_cast<char*>(sums + index), sum);
}

template <typename Machine, typename Element, typename Op>
void RunRange(float* sums, const float* before, const void* const* sources, int num_sources,
              int64_t begin, int64_t end) {
  constexpr int64_t kLanes = Machine::kVectorBytes / 4;
  int64_t index = begin;
  for (; end - index >= kLanes; index += kLanes) {
    RunVector<Machine, Element, Op>(sums, before, sources, num_sources, index, Whole{}, Whole{});
  }
  const auto left = static_cast<size_t>(end - index);
  if (left > 0) {
    RunVector<Machine, Element, Op>(sums, before, sources, num_sources, index, Part{left * 4},
                                    Part{left * 2});
  }
}

template <typename Machine, typename Element>
RunningSumKernel FindRunningSumKernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return &RunRange<Machine, Element, Add>;
    case ReduceOp::kProd:
      return &RunRange<Machine, Element, Multiply>;
    case ReduceOp::kMax:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return nullptr;
  }
  return nullptr;
}

template <typename Machine>
RunningSumKernel FindRunningSumKernel(DType dtype, ReduceOp op) {
  if (dtype == DType::kBFloat16) return FindRunningSumKernel<Machine, AsBFloat16<Machine>>(op);
  if (dtype == DType::kFloat16) return FindRunningSumKernel<Machine, AsFloat16<Machine>>(op);
  return nullptr;
}

}  // namespace
}  // namespace collops::kernels
