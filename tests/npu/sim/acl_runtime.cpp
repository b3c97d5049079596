// Devices and memory of a simulated libascendcl, from its published signatures.
#include <cstdint>
#include <cstring>
#include <string>

#include "memory.h"
#include "report.h"
#include "stream.h"

using collops_sim::Allocate;
using collops_sim::CurrentDevice;
using collops_sim::DeviceOf;
using collops_sim::FindStreamHere;
using collops_sim::Free;
using collops_sim::kHost;
using collops_sim::kNumDevices;
using collops_sim::kUnknown;
using collops_sim::NeedDevice;
using collops_sim::Report;
using collops_sim::Stream;
using collops_sim::ToldToFail;

namespace {

constexpr int kInvalidParam = 100000;
constexpr int kBadAlloc = 200000;
constexpr size_t kDeviceBytes = size_t{8} << 30;

enum Kind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault };

int AllocateFor(void** address, size_t bytes, int device) {
  *address = Allocate(bytes, device);
  return *address == nullptr ? kBadAlloc : 0;
}

int AllocateHere(void** address, size_t bytes) {
  const int code = NeedDevice();
  return code == 0 ? AllocateFor(address, bytes, CurrentDevice()) : code;
}

// The end that `kind` says is on a device lies in device memory, whole.
int CheckCopy(const void* to, size_t room, const void* from, size_t bytes, int kind) {
  if (bytes > room) return Report(kInvalidParam, "a copy is longer than its destination");
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice;
  const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
  if (bytes > 0 && to_device && DeviceOf(to, bytes) < 0) {
    return Report(kInvalidParam, "a copy to the device goes to a host pointer");
  }
  if (bytes > 0 && from_device && DeviceOf(from, bytes) < 0) {
    return Report(kInvalidParam, "a copy from the device comes from a host pointer");
  }
  return 0;
}

int CheckFill(const void* address, size_t room, size_t bytes) {
  if (bytes > room) return Report(kInvalidParam, "a fill is longer than its destination");
  if (bytes > 0 && DeviceOf(address, bytes) < 0) {
    return Report(kInvalidParam, "a fill goes to a host pointer, or past its allocation");
  }
  return 0;
}

}  // namespace

extern "C" {

int aclInit(const char*) {
  return 0;
}
int aclFinalize() {
  return 0;
}

int aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= kNumDevices) return Report(107001, "there is no such device");
  collops_sim::SetCurrentDevice(device);
  return 0;
}
int aclrtResetDevice(int32_t) {
  return 0;
}
int aclrtGetDevice(int32_t* device) {
  const int code = NeedDevice();
  if (code == 0) *device = CurrentDevice();
  return code;
}
int aclrtGetDeviceCount(uint32_t* count) {
  *count = kNumDevices;
  return 0;
}
const char* aclrtGetSocName() {
  return collops_sim::SocName();
}

// A context is its device's number and one.
int aclrtGetCurrentContext(void** context) {
  if (const int code = NeedDevice()) return code;
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(CurrentDevice() + 1));
  return 0;
}
int aclrtSetCurrentContext(void* context) {
  return aclrtSetDevice(static_cast<int32_t>(reinterpret_cast<intptr_t>(context) - 1));
}

int aclrtMalloc(void** address, size_t bytes, int) {
  return AllocateHere(address, bytes);
}
int aclrtMallocAlign32(void** address, size_t bytes, int) {
  return AllocateHere(address, bytes);
}
int aclrtMallocHost(void** address, size_t bytes) {
  return AllocateFor(address, bytes, kHost);
}
int aclrtFree(void* address) {
  return Free(address)
             ? 0
             : Report(kInvalidParam, "aclrtFree of memory that is not the device's, or in use");
}
int aclrtFreeHost(void* address) {
  return Free(address) ? 0 : Report(kInvalidParam, "aclrtFreeHost of memory of another kind");
}
int aclrtGetMemInfo(int, size_t* free, size_t* total) {
  *free = *total = kDeviceBytes;
  return 0;
}

struct PointerAttributes {
  uint32_t device;
  uint32_t kind;  // 0 host, 1 device, 2 neither
  uint32_t page_size;
  uint32_t reserved[4];
};
int aclrtPointerGetAttributes(const void* address, PointerAttributes* attributes) {
  const int device = DeviceOf(address, 1);
  *attributes = {};
  attributes->device = device < 0 ? 0 : static_cast<uint32_t>(device);
  attributes->kind = device == kUnknown ? 2 : device == kHost ? 0 : 1;
  return 0;
}

int aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, int kind) {
  const int error = CheckCopy(to, room, from, bytes, kind);
  if (error == 0 && bytes > 0) std::memcpy(to, from, bytes);
  return error;
}
int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int kind,
                     void* stream_handle) {
  int error = 0;
  Stream* stream = FindStreamHere(stream_handle, &error);
  if (error == 0) error = CheckCopy(to, room, from, bytes, kind);
  if (error != 0) return error;
  stream->Enqueue(
      [=] {
        if (bytes > 0) std::memcpy(to, from, bytes);
        return 0;
      },
      {to, from});
  return 0;
}
int aclrtMemset(void* address, size_t room, int32_t value, size_t bytes) {
  const int error = CheckFill(address, room, bytes);
  if (error == 0 && bytes > 0) std::memset(address, value, bytes);
  return error;
}
int aclrtMemsetAsync(void* address, size_t room, int32_t value, size_t bytes, void* stream_handle) {
  if (const int code = ToldToFail("aclrtMemsetAsync")) return code;
  int error = 0;
  Stream* stream = FindStreamHere(stream_handle, &error);
  if (error == 0) error = CheckFill(address, room, bytes);
  if (error != 0) return error;
  stream->Enqueue(
      [=] {
        if (bytes > 0) std::memset(address, value, bytes);
        return 0;
      },
      {address});
  return 0;
}

// torch_npu asks how long an option's text is, and takes 0 for an error.
size_t aclGetCompileoptSize(int) {
  return 1;
}
int aclGetCompileopt(int, char* value, size_t length) {
  if (length > 0) *value = '\0';
  return 0;
}

int aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
  *can = 0;
  return 0;
}

}  // extern "C"
