#include "nccl/call.h"

#include "sim/combine.h"

namespace collops_sim {

using collops::cuda::BFloat16;
using collops::cuda::Float16;
using collops::cuda::Real;

size_t SizeOf(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type < 0 || type >= kNumTypes ? 0 : kSizes[type];
}

bool CanReduce(int type) {
  return type >= 0 && type <= kBfloat16;
}

void Combine(int type, int reduction, void* left, const void* right, size_t count) {
  switch (static_cast<DataType>(type)) {
    case kInt8:
      return Combine<Whole<int8_t>>(reduction, left, right, count);
    case kUint8:
      return Combine<Whole<uint8_t>>(reduction, left, right, count);
    case kInt32:
      return Combine<Whole<int32_t>>(reduction, left, right, count);
    case kUint32:
      return Combine<Whole<uint32_t>>(reduction, left, right, count);
    case kInt64:
      return Combine<Whole<int64_t>>(reduction, left, right, count);
    case kUint64:
      return Combine<Whole<uint64_t>>(reduction, left, right, count);
    case kFloat16:
      return Combine<Float16>(reduction, left, right, count);
    case kFloat32:
      return Combine<Real<float>>(reduction, left, right, count);
    case kFloat64:
      return Combine<Real<double>>(reduction, left, right, count);
    case kBfloat16:
      return Combine<BFloat16>(reduction, left, right, count);
    case kFloat8e4m3:
    case kFloat8e5m2:
    case kNumTypes:
      return;
  }
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
