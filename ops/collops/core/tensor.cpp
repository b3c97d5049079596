#include "collops/core/tensor.h"

#include <algorithm>

namespace collops {

Shape::Shape(std::initializer_list<int64_t> sizes) : num_dims(static_cast<int>(sizes.size())) {
  std::copy_n(sizes.begin(), std::min<size_t>(sizes.size(), kMaxDims), dims);
}

Shape Shape::From(const int64_t* sizes, int num_dims) {
  Shape shape;
  shape.num_dims = num_dims;
  std::copy_n(sizes, std::min(num_dims, kMaxDims), shape.dims);
  return shape;
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < std::min(shape.num_dims, kMaxDims); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape.dims[i]);
  }
  if (shape.num_dims > kMaxDims) text += ", ...";
  return text + "]";
}

int64_t Numel(const Shape& shape) {
  int64_t count = 1;
  for (int i = 0; i < shape.num_dims; ++i) count *= shape.dims[i];
  return count;
}

int64_t NumBytes(const TensorDesc& desc) {
  return Numel(desc.shape) * SizeOf(desc.dtype);
}

std::string ToString(const Device& device) {
  switch (device.kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return "cuda:" + std::to_string(device.index);
    case DeviceKind::kNpu:
      return "npu:" + std::to_string(device.index);
    case DeviceKind::kOther:
      return "device:" + std::to_string(device.index);
    case DeviceKind::kMeta:
      return "meta";
  }
  return "unknown device";
}

}  // namespace collops
