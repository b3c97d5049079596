#include "blas/matmul.h"

#include <vector>

#include "collops/kernels/cuda/bodies/number.h"
#include "driver/memory.h"

namespace collops_sim {
namespace {

using collops::cuda::BFloat16;
using collops::cuda::Float16;

float Read(const void* data, int32_t type, size_t index) {
  const auto* const bits = static_cast<const uint16_t*>(data);
  if (type == kReal16) return Float16::Widen(bits[index]);
  if (type == kBrain16) return BFloat16::Widen(bits[index]);
  return static_cast<const float*>(data)[index];
}

void Write(void* data, int32_t type, size_t index, float value) {
  auto* const bits = static_cast<uint16_t*>(data);
  if (type == kReal16) {
    bits[index] = Float16::Narrow(value);
  } else if (type == kBrain16) {
    bits[index] = BFloat16::Narrow(value);
  } else {
    static_cast<float*>(data)[index] = value;
  }
}

float Rounded(float value, int32_t type) {
  float kept = 0;
  Write(&kept, type, 0, value);
  return Read(&kept, type, 0);
}

// op(X) as floats, row by row.
std::vector<float> Unpack(const void* address, const Layout& layout, bool transposes) {
  const void* const data = HostView(reinterpret_cast<uint64_t>(address));
  const uint64_t rows = transposes ? layout.columns : layout.rows;
  const uint64_t columns = transposes ? layout.rows : layout.columns;
  std::vector<float> values(rows * columns);
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) {
      const size_t at = transposes ? layout.At(c, r) : layout.At(r, c);
      values[r * columns + c] = Read(data, layout.type, at);
    }
  }
  return values;
}

}  // namespace

size_t BlasSize(int32_t type) {
  switch (static_cast<BlasType>(type)) {
    case kReal32:
      return 4;
    case kWhole8:
      return 1;
    case kWhole32:
      return 4;
    case kReal16:
    case kBrain16:
      return 2;
  }
  return 0;
}

size_t Layout::Bytes() const {
  return rows == 0 || columns == 0 ? 0 : (At(rows - 1, columns - 1) + 1) * BlasSize(type);
}

std::string CheckShapes(const Product& product) {
  const auto& [plan, a, b, c, d, a_data, b_data, d_data, alpha] = product;
  for (const Layout* layout : {&a, &b, &c, &d}) {
    const auto least = static_cast<int64_t>(layout->rows);
    if (BlasSize(layout->type) == 0)
      return "the simulation knows float32, float16, bfloat16 and int8 only";
    if (layout->stride < least) return "a leading dimension is less than the matrix is wide";
  }
  if (a.type != b.type || c.type != d.type) return "A and B, and C and D, have one type";
  // What NVIDIA's documentation says of int8 in the usual order of elements.
  if (plan.is_whole) {
    if (a.type != kWhole8 || d.type != kWhole32) return "A is int8, and D int32";
    if (plan.transposes_a == 0 || plan.transposes_b != 0) return "of int8 A is transposed, B not";
    if (a.columns % 4 != 0 || a.rows % 4 != 0 || a.stride % 4 != 0 || b.stride % 4 != 0) {
      return "of int8 m and k are multiples of 4";
    }
  } else if (a.type == kWhole8 || d.type == kWhole32) {
    return "int8 is added up in int32";
  }
  if (a.type != d.type && d.type != kReal32 && !plan.is_whole)
    return "D has the type of A, or float32";
  if (c.rows != d.rows || c.columns != d.columns) return "C and D have one shape";
  const uint64_t m = plan.transposes_a != 0 ? a.columns : a.rows;
  const uint64_t k = plan.transposes_a != 0 ? a.rows : a.columns;
  const uint64_t inner = plan.transposes_b != 0 ? b.columns : b.rows;
  const uint64_t n = plan.transposes_b != 0 ? b.rows : b.columns;
  if (d.rows != m || d.columns != n || k != inner) return "the shapes do not fit";
  return "";
}

namespace {

void MultiplyWhole(const Product& product) {
  const auto* const a =
      static_cast<const int8_t*>(HostView(reinterpret_cast<uint64_t>(product.a_data)));
  const auto* const b =
      static_cast<const int8_t*>(HostView(reinterpret_cast<uint64_t>(product.b_data)));
  auto* const out = static_cast<uint32_t*>(HostView(reinterpret_cast<uint64_t>(product.d_data)));
  for (size_t c = 0; c < product.d.columns; ++c) {
    for (size_t r = 0; r < product.d.rows; ++r) {
      uint32_t sum = 0;
      for (size_t i = 0; i < product.a.rows; ++i) {
        sum += static_cast<uint32_t>(a[product.a.At(i, r)] * b[product.b.At(i, c)]);
      }
      out[product.d.At(r, c)] = sum;
    }
  }
}

}  // namespace

void Multiply(const Product& product, int split, bool rounds) {
  if (product.plan.is_whole) return MultiplyWhole(product);
  const Layout& d = product.d;
  const std::vector<float> a = Unpack(product.a_data, product.a, product.plan.transposes_a != 0);
  const std::vector<float> b = Unpack(product.b_data, product.b, product.plan.transposes_b != 0);
  const size_t n = d.columns;
  const size_t k = d.rows == 0 ? 0 : a.size() / d.rows;
  const size_t parts = static_cast<size_t>(split);
  void* const out = HostView(reinterpret_cast<uint64_t>(product.d_data));
  std::vector<float> sums(n);
  std::vector<float> part(n);
  for (size_t r = 0; r < d.rows; ++r) {
    sums.assign(n, 0);
    for (size_t s = 0; s < parts; ++s) {
      part.assign(n, 0);
      for (size_t i = k * s / parts; i < k * (s + 1) / parts; ++i) {
        for (size_t c = 0; c < n; ++c) part[c] += a[r * k + i] * b[i * n + c];
      }
      for (size_t c = 0; c < n; ++c) sums[c] += rounds ? Rounded(part[c], d.type) : part[c];
    }
    for (size_t c = 0; c < n; ++c) Write(out, d.type, d.At(r, c), product.alpha * sums[c]);
  }
}

}  // namespace collops_sim
