// Devices and memory of a simulated libascendcl, from its published signatures.
#include "acl.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace collops_sim {
namespace {

thread_local int current_device = -1;
// As in CANN, a thread is told of its own errors, and of each once.
thread_local std::string recent;
thread_local std::string handed_out;

Home* Homes() {
  static auto* const homes = [] {
    auto* const made = new Home[kNumDevices];
    for (int i = 0; i < kNumDevices; ++i) made[i].device = i;
    return made;
  }();
  return homes;
}

}  // namespace

int Refuse(int code, const std::string& text) {
  recent = "EI9999: simulated CANN: " + text;
  return code;
}

void Mistake(const std::string& text) {
  std::fprintf(stderr, "simulated CANN: %s\n", text.c_str());
}

// No capture becomes invalid, and no stream waits for another unasked.
int RefuseInCapture(const std::shared_ptr<Capture>&, int code, const std::string& text) {
  return Refuse(code, text);
}
int CheckUncaptured(const Stream*) {
  return 0;
}
int CheckJoining(const std::shared_ptr<Capture>&, const Stream*) {
  return 0;
}

int DeviceOf(const void* address, size_t bytes) {
  return Find(reinterpret_cast<uint64_t>(address), bytes).device;
}

Home* CurrentHome() {
  return current_device < 0 ? nullptr : Homes() + current_device;
}

Stream* FindStream(void* handle) {
  if (handle != nullptr) return KnownStream(handle);
  Home* const home = CurrentHome();
  return home == nullptr ? nullptr : DefaultStream(home);
}

Stream* FindStreamHere(void* handle, int* code) {
  constexpr int kStreamOfAnotherContext = 107003;
  *code = NeedDevice();
  if (*code != 0) return nullptr;
  Stream* stream = FindStream(handle);
  if (stream != nullptr && stream->device() == current_device) return stream;
  *code = Refuse(kStreamOfAnotherContext, "the stream is none of this thread's device");
  return nullptr;
}

int CurrentDevice() {
  return current_device;
}

namespace {

std::vector<int> VisibleDevices() {
  std::vector<int> devices;
  const char* const text = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  std::istringstream list(text == nullptr ? "" : text);
  for (std::string one; devices.size() < kNumDevices && std::getline(list, one, ',');) {
    devices.push_back(std::atoi(one.c_str()));
  }
  while (text == nullptr && devices.size() < kNumDevices) {
    devices.push_back(static_cast<int>(devices.size()));
  }
  return devices;
}

}  // namespace

int PhysicalDevice(int device) {
  const std::vector<int> visible = VisibleDevices();
  return visible.at(static_cast<size_t>(device));
}

int NeedDevice() {
  constexpr int kNoContext = 107002;
  return current_device < 0 ? Refuse(kNoContext, "no device is set in this thread") : 0;
}

const char* SocName() {
  const char* name = std::getenv("COLLOPS_SIM_SOC");
  return name == nullptr ? "Ascend910B1" : name;
}

}  // namespace collops_sim

using namespace collops_sim;

namespace {

constexpr size_t kAlignment = 512;
constexpr int kPoison = 0xA5;
constexpr int kInvalidParam = 100000;
constexpr int kNotInCapture = 107030;    // ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT
constexpr int kWaitsInCapture = 107041;  // ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC
constexpr int kBadAlloc = 200000;
constexpr size_t kDeviceBytes = size_t{8} << 30;

enum Kind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault };

// Poisoned, so that what nobody wrote does not look like zeros.
int AllocateFor(void** address, size_t bytes, int device) {
  *address = nullptr;
  if (posix_memalign(address, kAlignment, bytes + 1) != 0) return kBadAlloc;
  std::memset(*address, kPoison, bytes);
  Allocation made;
  made.kind = device == kHostDevice ? Allocation::kPinned : Allocation::kDevice;
  made.begin = reinterpret_cast<uintptr_t>(*address);
  made.bytes = bytes;
  made.device = device;
  Insert(made);
  return 0;
}

// False for an address that was not allocated, and for memory that is pinned.
bool Free(void* address) {
  bool in_use = false;
  const Allocation removed = Remove(reinterpret_cast<uint64_t>(address), &in_use);
  if (in_use) Mistake("memory is freed that a stream has yet to use");
  if (removed.kind == Allocation::kNothing) return false;
  std::free(address);
  return true;
}

int AllocateHere(void** address, size_t bytes) {
  const int code = NeedDevice();
  return code == 0 ? AllocateFor(address, bytes, CurrentDevice()) : code;
}

// The end that `kind` says is on a device lies in device memory, whole.
int CheckCopy(const void* to, size_t room, const void* from, size_t bytes, int kind) {
  if (bytes > room) return Refuse(kInvalidParam, "a copy is longer than its destination");
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice;
  const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
  if (bytes > 0 && to_device && DeviceOf(to, bytes) < 0) {
    return Refuse(kInvalidParam, "a copy to the device goes to a host pointer");
  }
  if (bytes > 0 && from_device && DeviceOf(from, bytes) < 0) {
    return Refuse(kInvalidParam, "a copy from the device comes from a host pointer");
  }
  return 0;
}

int CheckFill(const void* address, size_t room, size_t bytes) {
  if (bytes > room) return Refuse(kInvalidParam, "a fill is longer than its destination");
  if (bytes > 0 && DeviceOf(address, bytes) < 0) {
    return Refuse(kInvalidParam, "a fill goes to a host pointer, or past its allocation");
  }
  return 0;
}

}  // namespace

extern "C" {

const char* aclGetRecentErrMsg() {
  if (recent.empty()) return nullptr;
  handed_out.swap(recent);
  recent.clear();
  return handed_out.c_str();
}
int aclInit(const char*) {
  return 0;
}
int aclFinalize() {
  return 0;
}

int aclrtSetDevice(int32_t device) {
  if (device < 0 || static_cast<size_t>(device) >= VisibleDevices().size())
    return Refuse(107001, "there is no such device");
  current_device = device;
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
  *count = static_cast<uint32_t>(VisibleDevices().size());
  return 0;
}
const char* aclrtGetSocName() {
  return SocName();
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
  return AllocateFor(address, bytes, kHostDevice);
}
int aclrtFree(void* address) {
  return Free(address)
             ? 0
             : Refuse(kInvalidParam, "aclrtFree of memory that is not the device's, or in use");
}
int aclrtFreeHost(void* address) {
  return Free(address) ? 0 : Refuse(kInvalidParam, "aclrtFreeHost of memory of another kind");
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
  attributes->kind = device == kNoDevice ? 2 : device == kHostDevice ? 0 : 1;
  return 0;
}

int aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, int kind) {
  if (CaptureForbids()) return Refuse(kNotInCapture, "aclrtMemcpy while a stream is captured");
  const int error = CheckCopy(to, room, from, bytes, kind);
  if (error == 0 && bytes > 0) std::memcpy(to, from, bytes);
  return error;
}
int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int kind,
                     void* stream_handle) {
  int error = 0;
  Stream* stream = FindStreamHere(stream_handle, &error);
  if (error == 0) error = CheckCopy(to, room, from, bytes, kind);
  // A copy from or to memory that is not locked waits.
  const bool waits = DeviceOf(to, bytes) == kNoDevice || DeviceOf(from, bytes) == kNoDevice;
  if (error == 0 && waits && CaptureForbids()) {
    error = Refuse(kWaitsInCapture, "the copy would wait while a stream is captured");
  }
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
  if (CaptureForbids()) return Refuse(kNotInCapture, "aclrtMemset while a stream is captured");
  const int error = CheckFill(address, room, bytes);
  if (error == 0 && bytes > 0) std::memset(address, value, bytes);
  return error;
}
int aclrtMemsetAsync(void* address, size_t room, int32_t value, size_t bytes, void* stream_handle) {
  if (const int code = PlannedFailure("aclrtMemsetAsync")) return code;
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
