// Memory of other processes in a simulated libcuda, by IPC handles, from its published signatures.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "collops/kernels/cuda/driver.h"
#include "driver/context.h"
#include "driver/memory.h"
#include "driver/openers.h"

using namespace collops_sim;
using collops::cuda::DevicePointer;
using collops::cuda::IpcMemoryHandle;

namespace {

constexpr unsigned kSlowCall = kNeedsInit | kNeedsContext | kIsUnsafe | kMayWait;

// What the 64 bytes of a handle are here.
struct Content {
  uint64_t magic;
  int32_t process;
  int32_t file;
  int32_t device;
  int32_t unused;
  uint64_t offset;  // of the allocation in its pages
  uint64_t bytes;
  uint64_t page_bytes;
  uint64_t begin;  // in the process that owns it: each address is used once there
};
static_assert(sizeof(Content) <= sizeof(IpcMemoryHandle));
constexpr uint64_t kMagic = 0x636f6c6c6f707301;

Result Open(const Content& content, uint64_t origin, DevicePointer* pointer) {
  const std::string path =
      "/proc/" + std::to_string(content.process) + "/fd/" + std::to_string(content.file);
  Allocation made;
  made.kind = Allocation::kOpened;
  made.bytes = content.bytes;
  made.device = content.device;
  made.page_bytes = content.page_bytes;
  made.file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (made.file < 0) return Refuse(kInvalidHandle, "the memory or its process is gone");
  made.pages = TakeAddresses(made.page_bytes, kPage);
  if (!MapPages(made.pages, made.page_bytes, made.file, 0, false, true)) return kMapFailed;
  made.begin = made.pages + content.offset;
  made.origin = origin;
  made.opened = 1;
  NoteOpener(made.file, made.page_bytes);
  Insert(made);
  *pointer = made.begin;
  return Result::kSuccess;
}

}  // namespace

extern "C" {

Result cuIpcGetMemHandle(IpcMemoryHandle* handle, DevicePointer pointer) {
  const Result result = Enter("cuIpcGetMemHandle", kNeedsInit | kNeedsContext);
  if (result != Result::kSuccess) return result;
  const Allocation found = Find(pointer, 0);
  if (found.kind != Allocation::kDevice) {
    return Refuse(kInvalidValue, "only memory of cuMemAlloc has IPC handles");
  }
  const Content content{
      kMagic,      getpid(),         found.file, found.device, 0, found.begin - found.pages,
      found.bytes, found.page_bytes, found.begin};
  std::memset(handle, 0, sizeof(*handle));
  std::memcpy(handle, &content, sizeof(content));
  return result;
}
Result cuIpcOpenMemHandle_v2(DevicePointer* pointer, IpcMemoryHandle handle, unsigned int flags) {
  const Result result = Enter("cuIpcOpenMemHandle_v2", kSlowCall);
  if (result != Result::kSuccess) return result;
  Content content{};
  std::memcpy(&content, &handle, sizeof(content));
  if (content.magic != kMagic) return Refuse(kInvalidHandle, "this is no IPC handle");
  if (flags != collops::cuda::kIpcLazyPeerAccess) {
    return Refuse(kInvalidValue, "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS is missing");
  }
  if (content.process == getpid()) {
    return Refuse(kInvalidContext, "a handle of this process cannot be opened in it");
  }
  const int device = CurrentContext()->device;
  if (content.device != device && !CanAccessPeer(device, content.device)) {
    return Refuse(kPeerAccessUnsupported, "the device cannot reach this memory");
  }
  const uint64_t origin = static_cast<uint64_t>(content.process) << 44 ^ content.begin;
  const Allocation again = OpenAgain(origin);
  if (again.kind == Allocation::kNothing) return Open(content, origin, pointer);
  *pointer = again.begin;
  return result;
}
Result cuIpcCloseMemHandle(DevicePointer pointer) {
  const Result result = Enter("cuIpcCloseMemHandle", kSlowCall);
  if (result != Result::kSuccess) return result;
  const int left = CloseOnce(pointer);
  if (left < 0) return Refuse(kInvalidValue, "this is no memory of cuIpcOpenMemHandle");
  if (left > 0) return result;
  bool in_use = false;
  const Allocation removed = Remove(pointer, &in_use);
  if (in_use) {
    Mistake("memory of another process is closed that a stream has yet to use");
    return kInvalidValue;
  }
  ForgetOpener(removed.file, removed.page_bytes);
  UnmapPages(removed.pages, removed.page_bytes);
  close(removed.file);
  return result;
}

}  // extern "C"
