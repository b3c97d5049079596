#pragma once

// ACL's names that programs written for ATB use, on a CPU: the memory of a device is host memory,
// and what is put on a stream is done when the call returns. Numbers are ACL's. Not beside CANN's
// own acl/acl.h, which declares the same names.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops {
namespace [[gnu::visibility("default")]] atb {

// The message of this thread's last error; empty before the first.
const char* LastMessage();
// Writes the message to standard error, and keeps it for LastMessage().
void WriteError(const std::string& message);

}  // namespace atb
}  // namespace collops

enum aclDataType : int32_t {
  ACL_DT_UNDEFINED = -1,
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_UINT16 = 7,
  ACL_UINT32 = 8,
  ACL_INT64 = 9,
  ACL_UINT64 = 10,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_COMPLEX64 = 16,
  ACL_COMPLEX128 = 17,
  ACL_BF16 = 27,
};

enum aclFormat : int32_t {
  ACL_FORMAT_UNDEFINED = -1,
  ACL_FORMAT_NCHW = 0,
  ACL_FORMAT_NHWC = 1,
  ACL_FORMAT_ND = 2,
  ACL_FORMAT_NC1HWC0 = 3,
  ACL_FORMAT_FRACTAL_Z = 4,
  ACL_FORMAT_HWCN = 16,
  ACL_FORMAT_NDHWC = 27,
  ACL_FORMAT_FRACTAL_NZ = 29,
  ACL_FORMAT_NCDHW = 30,
  ACL_FORMAT_NDC1HWC0 = 32,
};

enum aclrtMemMallocPolicy : int32_t {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2,
};

enum aclrtMemcpyKind : int32_t {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4,
};

using aclError = int;
using aclrtStream = void*;
using aclrtContext = void*;

constexpr aclError ACL_SUCCESS = 0;
constexpr aclError ACL_ERROR_NONE = 0;
constexpr aclError ACL_ERROR_INVALID_PARAM = 100000;
constexpr aclError ACL_ERROR_BAD_ALLOC = 200000;

namespace collops {
namespace atb {

// The device that this thread has chosen; all of them are the CPU.
inline thread_local int32_t current_device = 0;

template <typename... Parts>
aclError Refused(const char* function, const Parts&... parts) {
  WriteError(Concat(function, ": ", parts...));
  return ACL_ERROR_INVALID_PARAM;
}

inline aclError Allocated(const char* function, const void* address, size_t bytes) {
  if (address != nullptr) return ACL_SUCCESS;
  WriteError(Concat(function, ": cannot allocate ", bytes, " bytes"));
  return ACL_ERROR_BAD_ALLOC;
}

// Streams and contexts hold nothing, but ATB's programs test that they are not null.
inline aclError MakeHandle(const char* function, void** handle) {
  if (handle == nullptr) return Refused(function, "the place for the handle is null");
  *handle = std::malloc(1);
  return Allocated(function, *handle, 1);
}

inline aclError DropHandle(const char* function, void* handle) {
  std::free(handle);
  return handle == nullptr ? Refused(function, "the handle is null") : ACL_SUCCESS;
}

inline aclError Allocate(const char* function, void** address, size_t bytes) {
  constexpr size_t kAlignment = 64;
  if (address == nullptr) return Refused(function, "the place for the address is null");
  if (bytes == 0) return Refused(function, "0 bytes: the address of an empty tensor is nullptr");
  if (bytes > SIZE_MAX - kAlignment) return Refused(function, bytes, " bytes are too many");
  *address = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return Allocated(function, *address, bytes);
}

}  // namespace atb
}  // namespace collops

inline aclError aclInit(const char* /*config_path*/) {
  return ACL_SUCCESS;
}
inline aclError aclFinalize() {
  return ACL_SUCCESS;
}
inline const char* aclGetRecentErrMsg() {
  return collops::atb::LastMessage();
}
inline size_t aclDataTypeSize(aclDataType type) {
  return static_cast<size_t>(collops::SizeOf(static_cast<collops::DType>(type)));
}
// Programs look for the name of a chip that has the operators.
inline const char* aclrtGetSocName() {
  return "Ascend910B-cpu";
}

inline aclError aclrtGetDeviceCount(uint32_t* count) {
  if (count == nullptr) return collops::atb::Refused("aclrtGetDeviceCount", "count is null");
  *count = std::thread::hardware_concurrency();
  return ACL_SUCCESS;
}
inline aclError aclrtSetDevice(int32_t device) {
  if (device < 0) {
    return collops::atb::Refused("aclrtSetDevice", "device must be >= 0, got ", device);
  }
  collops::atb::current_device = device;
  return ACL_SUCCESS;
}
inline aclError aclrtGetDevice(int32_t* device) {
  if (device == nullptr) return collops::atb::Refused("aclrtGetDevice", "device is null");
  *device = collops::atb::current_device;
  return ACL_SUCCESS;
}
inline aclError aclrtResetDevice(int32_t /*device*/) {
  return ACL_SUCCESS;
}
inline aclError aclrtSynchronizeDevice() {
  return ACL_SUCCESS;
}

inline aclError aclrtCreateContext(aclrtContext* context, int32_t /*device*/) {
  return collops::atb::MakeHandle("aclrtCreateContext", context);
}
inline aclError aclrtDestroyContext(aclrtContext context) {
  return collops::atb::DropHandle("aclrtDestroyContext", context);
}
inline aclError aclrtSetCurrentContext(aclrtContext /*context*/) {
  return ACL_SUCCESS;
}
inline aclError aclrtCreateStream(aclrtStream* stream) {
  return collops::atb::MakeHandle("aclrtCreateStream", stream);
}
inline aclError aclrtDestroyStream(aclrtStream stream) {
  return collops::atb::DropHandle("aclrtDestroyStream", stream);
}
inline aclError aclrtSynchronizeStream(aclrtStream /*stream*/) {
  return ACL_SUCCESS;
}

inline aclError aclrtMalloc(void** address, size_t bytes, aclrtMemMallocPolicy /*policy*/) {
  return collops::atb::Allocate("aclrtMalloc", address, bytes);
}
inline aclError aclrtFree(void* address) {
  std::free(address);
  return ACL_SUCCESS;
}
inline aclError aclrtMallocHost(void** address, size_t bytes) {
  return collops::atb::Allocate("aclrtMallocHost", address, bytes);
}
inline aclError aclrtFreeHost(void* address) {
  std::free(address);
  return ACL_SUCCESS;
}
inline aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes,
                            aclrtMemcpyKind /*kind*/) {
  if (to == nullptr) return collops::atb::Refused("aclrtMemcpy", "the target is null");
  if (bytes > room) {
    return collops::atb::Refused("aclrtMemcpy", bytes, " bytes do not fit into ", room);
  }
  if (from == nullptr) return collops::atb::Refused("aclrtMemcpy", "the source is null");
  std::memcpy(to, from, bytes);
  return ACL_SUCCESS;
}
inline aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes,
                                 aclrtMemcpyKind kind, aclrtStream /*stream*/) {
  return aclrtMemcpy(to, room, from, bytes, kind);
}
inline aclError aclrtMemset(void* to, size_t room, int32_t value, size_t bytes) {
  if (to == nullptr) return collops::atb::Refused("aclrtMemset", "the target is null");
  if (bytes > room) {
    return collops::atb::Refused("aclrtMemset", bytes, " bytes do not fit into ", room);
  }
  std::memset(to, value, bytes);
  return ACL_SUCCESS;
}
inline aclError aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t bytes,
                                 aclrtStream /*stream*/) {
  return aclrtMemset(to, room, value, bytes);
}
