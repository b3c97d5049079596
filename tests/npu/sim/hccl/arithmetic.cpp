#include "arithmetic.h"

#include "sim/combine.h"

namespace collops_sim {

size_t SizeOf(int type) {
  switch (type) {
    case kInt8:
    case kUInt8:
      return 1;
    case kInt16:
    case kUInt16:
    case kFloat16:
    case kBFloat16:
      return 2;
    case kInt32:
    case kUInt32:
    case kFloat32:
      return 4;
    case kInt64:
    case kUInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

void Combine(int type, int reduction, void* left, const void* right, size_t count) {
  switch (type) {
    case kInt8:
      return Combine<Whole<int8_t>>(reduction, left, right, count);
    case kInt16:
      return Combine<Whole<int16_t>>(reduction, left, right, count);
    case kInt32:
      return Combine<Whole<int32_t>>(reduction, left, right, count);
    case kInt64:
      return Combine<Whole<int64_t>>(reduction, left, right, count);
    case kFloat16:
      return Combine<collops::cuda::Float16>(reduction, left, right, count);
    case kBFloat16:
      return Combine<collops::cuda::BFloat16>(reduction, left, right, count);
    case kFloat32:
      return Combine<collops::cuda::Real<float>>(reduction, left, right, count);
    default:
      return;
  }
}

}  // namespace collops_sim
