#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "collops/core/dtype.h"

namespace [[gnu::visibility("default")]] collops {

constexpr int kMaxDims = 8;

// Sizes of up to eight dimensions. `num_dims` may be larger for a tensor that the checks will
// refuse; then only the first eight sizes are stored.
struct Shape {
  int64_t dims[kMaxDims] = {};
  int num_dims = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  static Shape From(const int64_t* sizes, int num_dims);

  int64_t operator[](int i) const { return dims[i]; }
  // A loop, because std::equal calls memcmp, and every call compares the shapes of all its tensors.
  bool operator==(const Shape& other) const {
    bool equal = num_dims == other.num_dims;
    for (int i = 0; i < std::min(num_dims, kMaxDims); ++i) equal &= dims[i] == other.dims[i];
    return equal;
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }
};

// "[2, 3]"
std::string ToString(const Shape& shape);

struct TensorDesc {
  DType dtype = DType::kUndefined;
  Format format = Format::kND;
  Shape shape;
  // What messages call an element type without a number; lives as long as the process.
  const char* type_name = nullptr;

  bool operator==(const TensorDesc& other) const {
    return dtype == other.dtype && format == other.format && shape == other.shape;
  }
  bool operator!=(const TensorDesc& other) const { return !(*this == other); }
};

// The name of its element type, in messages.
inline const char* NameOfType(const TensorDesc& desc) {
  const bool is_known = desc.dtype != DType::kUndefined || desc.type_name == nullptr;
  return is_known ? Name(desc.dtype) : desc.type_name;
}

// Number of elements; valid for a desc that has passed the checks (no overflow up to 256 GB).
int64_t Numel(const Shape& shape);
int64_t NumBytes(const TensorDesc& desc);

// Whether two ranges of memory share a byte; an empty or null range shares none. By subtraction,
// because a sum could wrap around near the end of the address space.
inline bool Overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  if (a == nullptr || b == nullptr || a_bytes == 0 || b_bytes == 0) return false;
  const auto a_begin = reinterpret_cast<uintptr_t>(a);
  const auto b_begin = reinterpret_cast<uintptr_t>(b);
  return a_begin <= b_begin ? b_begin - a_begin < static_cast<uint64_t>(a_bytes)
                            : a_begin - b_begin < static_cast<uint64_t>(b_bytes);
}

// A kMeta tensor has a shape and no memory, as on torch's "meta" device.
enum class DeviceKind : int32_t { kCpu = 0, kCuda = 1, kNpu = 2, kOther = 3, kMeta = 4 };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device& other) const { return kind == other.kind && index == other.index; }
};

// Whether a tensor on `got` is where a call wants it; index -1 wants any device of that kind.
inline bool IsOn(const Device& want, const Device& got) {
  return got.kind == want.kind && (want.index < 0 || got.index == want.index);
}

// "cpu", "cuda:1", "npu:0", "meta"
std::string ToString(const Device& device);

// A tensor that the caller owns: its descriptor, its address, and what the checks need. `data` may
// be null if the tensor is empty.
struct TensorView {
  TensorDesc desc;
  void* data = nullptr;
  Device device;
  bool contiguous = true;
  bool read_only = false;
  bool foreign_endian = false;

  bool operator==(const TensorView& other) const {
    return data == other.data && device == other.device && contiguous == other.contiguous &&
           read_only == other.read_only && foreign_endian == other.foreign_endian &&
           desc == other.desc;
  }
};

// ATB's name for the tensors of one call.
struct VariantPack {
  std::vector<TensorView> inputs;
  std::vector<TensorView> outputs;
};

}  // namespace collops
