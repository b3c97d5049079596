#include "nccl/call.h"

#include <algorithm>

#include "collops/kernels/cuda/bodies/number.h"

namespace collops_sim {
namespace {

using collops::cuda::BFloat16;
using collops::cuda::Float16;
using collops::cuda::Real;

// Integers modulo 2^bits: this is compiled with -fwrapv.
template <class T>
struct Whole {
  using Bits = T;
  using Value = T;
  static Value Widen(Bits bits) { return bits; }
  template <class Wider>
  static Bits Narrow(Wider value) {
    return static_cast<Bits>(value);
  }
};

template <class N>
void CombineAs(int reduction, void* left, const void* right, size_t count) {
  using Bits = typename N::Bits;
  auto* const a = static_cast<Bits*>(left);
  const auto* const b = static_cast<const Bits*>(right);
  for (size_t i = 0; i < count; ++i) {
    const auto x = N::Widen(a[i]);
    const auto y = N::Widen(b[i]);
    if (reduction == kProd) {
      a[i] = N::Narrow(x * y);
    } else if (reduction == kMax) {
      a[i] = N::Narrow(std::max(x, y));
    } else if (reduction == kMin) {
      a[i] = N::Narrow(std::min(x, y));
    } else {
      a[i] = N::Narrow(x + y);
    }
  }
}

template <class N>
void DivideAs(void* data, size_t count, int ranks) {
  auto* const a = static_cast<typename N::Bits*>(data);
  for (size_t i = 0; i < count; ++i) {
    a[i] = N::Narrow(N::Widen(a[i]) / static_cast<typename N::Value>(ranks));
  }
}

// Calls body(Number) with the type's.
template <class Body>
void ForType(int type, const Body& body) {
  switch (static_cast<DataType>(type)) {
    case kInt8:
      return body(Whole<int8_t>());
    case kUint8:
      return body(Whole<uint8_t>());
    case kInt32:
      return body(Whole<int32_t>());
    case kUint32:
      return body(Whole<uint32_t>());
    case kInt64:
      return body(Whole<int64_t>());
    case kUint64:
      return body(Whole<uint64_t>());
    case kFloat16:
      return body(Float16());
    case kFloat32:
      return body(Real<float>());
    case kFloat64:
      return body(Real<double>());
    case kBfloat16:
      return body(BFloat16());
    case kFloat8e4m3:
    case kFloat8e5m2:
    case kNumTypes:
      return;
  }
}

}  // namespace

size_t SizeOf(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type < 0 || type >= kNumTypes ? 0 : kSizes[type];
}

bool CanReduce(int type) {
  return type >= 0 && type <= kBfloat16;
}

void Combine(int type, int reduction, void* left, const void* right, size_t count) {
  ForType(type, [&](auto number) { CombineAs<decltype(number)>(reduction, left, right, count); });
}

void Divide(int type, void* data, size_t count, int ranks) {
  ForType(type, [&](auto number) { DivideAs<decltype(number)>(data, count, ranks); });
}

std::string Difference(const Header& mine, const Header& theirs) {
  if (mine.kind != theirs.kind) return "the operation";
  if (mine.number != theirs.number) return "the number of the call";
  if (mine.type != theirs.type) return "the data type";
  if (mine.reduction != theirs.reduction) return "the reduction";
  if (mine.root != theirs.root) return "the root";
  return mine.count != theirs.count ? "the count" : "";
}

}  // namespace collops_sim
