// The elements of a tensor's view: how they are read, rounded and written.
#include <cstring>

#include "collops/kernels/cuda/bodies/number.h"
#include "tensor.h"

namespace collops_sim {
namespace {

using collops::cuda::BFloat16;
using collops::cuda::Float16;

template <typename Element>
Number LoadAs(const char* from) {
  Element value{};
  std::memcpy(&value, from, sizeof(value));
  return static_cast<Number>(value);
}

template <typename Element>
void StoreAs(char* to, Number value) {
  const auto rounded = static_cast<Element>(value);
  std::memcpy(to, &rounded, sizeof(rounded));
}

template <typename Half>
void StoreHalf(char* to, Number value) {
  const uint16_t bits = Half::Narrow(static_cast<float>(value));
  std::memcpy(to, &bits, sizeof(bits));
}

template <typename Half>
Number LoadHalf(const char* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return static_cast<Number>(Half::Widen(bits));
}

// Calls with the offset of every element, in row-major order.
template <typename Function>
void ForEach(const Tensor& tensor, const Function& function) {
  std::vector<int64_t> index(tensor.dims.size(), 0);
  const int64_t count = tensor.count();
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.strides[d];
    function(static_cast<size_t>(i), static_cast<size_t>(offset) * tensor.element());
    for (size_t d = index.size(); d-- > 0 && ++index[d] == tensor.dims[d];) index[d] = 0;
  }
}

}  // namespace

size_t ElementSize(int type) {
  switch (type) {
    case kAclInt8:
    case kAclUint8:
    case kAclBool:
      return 1;
    case kAclFloat16:
    case kAclBFloat16:
    case kAclInt16:
      return 2;
    case kAclFloat:
    case kAclInt32:
      return 4;
    case kAclInt64:
    case kAclDouble:
    case kAclComplex64:
      return 8;
    case kAclComplex128:
      return 16;
    default:
      return 0;
  }
}

Number Load(int type, const char* from) {
  switch (type) {
    case kAclFloat:
      return LoadAs<float>(from);
    case kAclDouble:
      return LoadAs<double>(from);
    case kAclInt8:
      return LoadAs<int8_t>(from);
    case kAclInt16:
      return LoadAs<int16_t>(from);
    case kAclInt32:
      return LoadAs<int32_t>(from);
    case kAclInt64:
      return LoadAs<int64_t>(from);
    case kAclFloat16:
      return LoadHalf<Float16>(from);
    case kAclBFloat16:
      return LoadHalf<BFloat16>(from);
    default:
      return LoadAs<uint8_t>(from);
  }
}

void Store(int type, char* to, Number value) {
  switch (type) {
    case kAclFloat:
      return StoreAs<float>(to, value);
    case kAclDouble:
      return StoreAs<double>(to, value);
    case kAclInt8:
      return StoreAs<int8_t>(to, value);
    case kAclInt16:
      return StoreAs<int16_t>(to, value);
    case kAclInt32:  // modulo 2^32
      return StoreAs<uint32_t>(
          to, static_cast<Number>(static_cast<uint32_t>(static_cast<int64_t>(value))));
    case kAclInt64:
      return StoreAs<int64_t>(to, value);
    case kAclFloat16:
      return StoreHalf<Float16>(to, value);
    case kAclBFloat16:
      return StoreHalf<BFloat16>(to, value);
    case kAclBool:
      return StoreAs<uint8_t>(to, value != 0 ? 1 : 0);
    default:
      return StoreAs<uint8_t>(to, value);
  }
}

std::vector<float> Tensor::Read() const {
  std::vector<float> values(static_cast<size_t>(count()));
  ForEach(*this,
          [&](size_t i, size_t at) { values[i] = static_cast<float>(Load(type, data + at)); });
  return values;
}

void Tensor::Write(const std::vector<float>& values) const {
  ForEach(*this, [&](size_t i, size_t at) { Store(type, data + at, values[i]); });
}

std::vector<Number> Tensor::ReadNumbers() const {
  std::vector<Number> values(static_cast<size_t>(count()));
  ForEach(*this, [&](size_t i, size_t at) { values[i] = Load(type, data + at); });
  return values;
}

void Tensor::WriteNumbers(const std::vector<Number>& values) const {
  ForEach(*this, [&](size_t i, size_t at) { Store(type, data + at, values[i]); });
}

void Tensor::AddNumbers(const std::vector<Number>& values) const {
  ForEach(*this,
          [&](size_t i, size_t at) { Store(type, data + at, Load(type, data + at) + values[i]); });
}

std::vector<std::string> Tensor::ReadBytes() const {
  std::vector<std::string> values(static_cast<size_t>(count()));
  ForEach(*this, [&](size_t i, size_t at) { values[i].assign(data + at, element()); });
  return values;
}

void Tensor::WriteBytes(const std::vector<std::string>& values) const {
  ForEach(*this, [&](size_t i, size_t at) { std::memcpy(data + at, values[i].data(), element()); });
}

bool Tensor::FitsOver(const std::vector<int64_t>& shape) const {
  if (dims.size() > shape.size()) return false;
  const size_t added = shape.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1 && dims[d] != shape[added + d]) return false;
  }
  return true;
}

Tensor Tensor::Over(const std::vector<int64_t>& shape) const {
  Tensor spread = *this;
  const size_t added = shape.size() - dims.size();
  spread.dims = shape;
  spread.strides.assign(shape.size(), 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] == shape[added + d]) spread.strides[added + d] = strides[d];
  }
  return spread;
}

}  // namespace collops_sim
