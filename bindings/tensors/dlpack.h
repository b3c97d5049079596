#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "tensors/tensor.h"

// The part of DLPack's C interface (https://dmlc.github.io/dlpack) that is used here.
namespace collops::bindings::dlpack {

constexpr uint32_t kMajorVersion = 1;

enum DeviceType : int32_t {
  kCpu = 1,
  kCuda = 2,
  kCudaHost = 3,
  kRocm = 10,
  kRocmHost = 11,
  kCudaManaged = 13,
};

// Of ManagedVersioned::flags.
constexpr uint64_t kReadOnly = 1;

struct Device {
  int32_t type;
  int32_t index;
};

struct Type {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t num_dims;
  Type type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: in row-major order
  uint64_t byte_offset;
};

// The contents of a capsule called "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*release)(Managed*);
};

// The contents of a capsule called "dltensor_versioned", from DLPack 1.0 on.
struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*release)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};

// The capsule "dlpack_exchange_api" that a class of tensors has from DLPack 1.3 on.
struct ExchangeApi {
  uint32_t major;
  uint32_t minor;
  const ExchangeApi* previous;
  void* functions_not_used_here[3];
  // Describes a tensor that the caller keeps alive; 0, or a Python error is set.
  int (*describe)(void* object, Tensor* tensor);
};

// The types that have a name, and their numbers in the core; kUndefined if one has none.
struct NamedType {
  uint8_t code;
  uint8_t bits;
  const char* name;        // numpy's or ml_dtypes' name
  const char* numpy_name;  // numpy's name; unsigned numbers of that size if numpy has no such type
};

constexpr NamedType kTypes[] = {
    {0, 8, "int8", "int8"},
    {0, 16, "int16", "int16"},
    {0, 32, "int32", "int32"},
    {0, 64, "int64", "int64"},
    {1, 8, "uint8", "uint8"},
    {1, 16, "uint16", "uint16"},
    {1, 32, "uint32", "uint32"},
    {1, 64, "uint64", "uint64"},
    {2, 16, "float16", "float16"},
    {2, 32, "float32", "float32"},
    {2, 64, "float64", "float64"},
    {4, 16, "bfloat16", "uint16"},
    {5, 64, "complex64", "complex64"},
    {5, 128, "complex128", "complex128"},
    {6, 8, "bool", "bool"},
    {7, 8, "float8_e3m4", "uint8"},
    {8, 8, "float8_e4m3", "uint8"},
    {9, 8, "float8_e4m3b11fnuz", "uint8"},
    {10, 8, "float8_e4m3fn", "uint8"},
    {11, 8, "float8_e4m3fnuz", "uint8"},
    {12, 8, "float8_e5m2", "uint8"},
    {13, 8, "float8_e5m2fnuz", "uint8"},
    {14, 8, "float8_e8m0fnu", "uint8"},
};

DType NumberOf(const Type& type);

// Fills in the core's view of a tensor on `device`.
void SetView(const Tensor& source, const collops::Device& device, bindings::Tensor* tensor);

// The core's word for a device; false of one whose memory is not read here. Pinned memory counts as
// the CPU's.
inline bool ToDevice(const Device& said, collops::Device* device) {
  const bool on_cuda = said.type == kCuda || said.type == kCudaManaged;
  if (on_cuda) *device = {DeviceKind::kCuda, said.index};
  return on_cuda || said.type == kCpu || said.type == kCudaHost || said.type == kRocmHost;
}

// A capsule of row-major elements. `use` is destroyed when the consumer lets go, in any thread and
// without the GIL. `versioned`: as from DLPack 1.0 on.
pybind11::object Export(void* data, Device device, Type type, const std::vector<int64_t>& shape,
                        std::shared_ptr<void> use, bool versioned);

}  // namespace collops::bindings::dlpack
