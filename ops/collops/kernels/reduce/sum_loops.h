#pragma once

#include <algorithm>
#include <cstdint>

#include "collops/kernels/half.h"
#include "collops/kernels/reduce/leaf_tree.h"
#include "collops/kernels/reduce/reduce_elements.h"
#include "collops/kernels/reduce/reduce_kernels.h"
#include "collops/kernels/vector.h"

// The loops of StoreSum() and RunningSum(). In an unnamed namespace for the reason given in
// vector.h. A Machine has vectors of kVectorBytes and converts float16.
namespace collops::kernels {
namespace {

template <typename Machine>
using SumVector = Vector<float, Machine::kVectorBytes>;
template <typename Machine>
using HalfVector = Vector<uint16_t, Machine::kVectorBytes / 2>;

// Converts elements to float32 and back.
template <typename Machine>
struct AsFloat32 {
  using Stored = SumVector<Machine>;
  static SumVector<Machine> Widen(Stored stored) { return stored; }
  static Stored Narrow(SumVector<Machine> sum) { return sum; }
};

template <typename Machine>
struct AsBFloat16 {
  using Lane = VectorLane<Machine::kVectorBytes>;
  using Stored = HalfVector<Machine>;
  static SumVector<Machine> Widen(Stored stored) {
    return Lane::ToFloat(__builtin_convertvector(stored, typename Lane::Bits) << 16);
  }
  static Stored Narrow(SumVector<Machine> sum) {
    return __builtin_convertvector(BFloat16InUpperHalf<Lane>(sum) >> 16, Stored);
  }
};

template <typename Machine>
struct AsFloat16 {
  using Stored = HalfVector<Machine>;
  static SumVector<Machine> Widen(Stored stored) { return Machine::WidenFloat16(stored); }
  static Stored Narrow(SumVector<Machine> sum) { return Machine::NarrowFloat16(sum); }
};

// One vector of the row; `access` and `stored_access` are Whole, or Part of the same elements.
template <typename Machine, typename Element, typename Access>
void StoreVector(const float* const* partials, int num_partials, const uint8_t* tree,
                 int64_t offset, float divisor, const char* residual, char* out, Access access,
                 Access stored_access) {
  using Sum = SumVector<Machine>;
  const auto load = [&](int i) {
    return access.template Load<Sum>(reinterpret_cast<const char*>(partials[i] + offset));
  };
  Sum sum = load(0);
  if (tree == nullptr) {
    for (int i = 1; i < num_partials; ++i) sum += load(i);
  } else {
    Sum waiting[kMostWaitingSums];
    int num_waiting = 0;
    for (int i = 1; i < num_partials; ++i) {
      waiting[num_waiting++] = sum;
      sum = load(i);
      for (int added = 0; added < tree[i]; ++added) sum = waiting[--num_waiting] + sum;
    }
  }
  if (divisor != 1.0F) sum /= divisor;
  if (residual != nullptr) {
    sum += Element::Widen(stored_access.template Load<typename Element::Stored>(residual));
  }
  stored_access.Store(out, Element::Narrow(sum));
}

template <typename Machine, typename Element>
void StoreRow(const float* const* partials, int num_partials, const uint8_t* tree, int64_t offset,
              float divisor, const void* residual, int64_t columns, void* out) {
  constexpr int64_t kLanes = Machine::kVectorBytes / 4;
  constexpr int64_t kElementBytes = sizeof(typename Element::Stored) / kLanes;
  int64_t column = 0;
  const auto store = [&](auto access, auto stored_access) {
    const char* const addend =
        residual == nullptr ? nullptr : static_cast<const char*>(residual) + column * kElementBytes;
    StoreVector<Machine, Element>(partials, num_partials, tree, offset + column, divisor, addend,
                                  static_cast<char*>(out) + column * kElementBytes, access,
                                  stored_access);
  };
  for (; columns - column >= kLanes; column += kLanes) store(Whole{}, Whole{});
  const auto left = static_cast<size_t>(columns - column);
  if (left > 0) store(Part{left * 4}, Part{left * static_cast<size_t>(kElementBytes)});
}

template <typename Machine>
StoreSumKernel FindStoreSumKernel(DType dtype) {
  if (dtype == DType::kFloat32) return &StoreRow<Machine, AsFloat32<Machine>>;
  if (dtype == DType::kBFloat16) return &StoreRow<Machine, AsBFloat16<Machine>>;
  if (dtype == DType::kFloat16) return &StoreRow<Machine, AsFloat16<Machine>>;
  return nullptr;
}

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
