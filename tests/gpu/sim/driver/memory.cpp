#include "driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "collops/kernels/cuda/bodies/memory.h"

namespace collops_sim {
namespace {

constexpr size_t kRange = size_t{1} << 42;
constexpr size_t kAlignment = 256;  // what cuMemAlloc promises, and no more
constexpr int kPoison = 0xA5;

uintptr_t range = 0;  // device addresses; the bytes are kRange behind

std::mutex addresses_mutex;
uintptr_t next_address = 0;

}  // namespace

void ReserveAddresses() {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const found = mmap(nullptr, 2 * kRange, PROT_NONE, kFlags, -1, 0);
  if (found == MAP_FAILED) std::abort();
  range = reinterpret_cast<uintptr_t>(found);
  next_address = range + kPage;
  collops::cuda::host_shift = HostShift();
}

bool IsDeviceAddress(uintptr_t address) {
  return range != 0 && address - range < kRange;
}
bool IsHostView(uintptr_t address) {
  return range != 0 && address - range - kRange < kRange;
}
std::ptrdiff_t HostShift() {
  return static_cast<std::ptrdiff_t>(kRange);
}

void* HostView(uint64_t address) {
  return reinterpret_cast<void*>(IsDeviceAddress(address) ? address + kRange : address);
}

std::string CheckOnDevice(const void* address, size_t bytes, int device) {
  if (bytes == 0) return "";
  const Allocation found = Find(reinterpret_cast<uint64_t>(address), bytes);
  const std::string what = std::to_string(bytes) + " bytes";
  if (found.kind == Allocation::kNothing) return what + " are not all in one device allocation";
  if (!found.accessible) return what + " are mapped, but cuMemSetAccess has not been called";
  if (found.kind == Allocation::kPinned || found.device == device) return "";
  return what + " are on device " + std::to_string(found.device) + ", not on device " +
         std::to_string(device);
}

// Opening a handle enables the access to what it opens.
std::string CheckReach(const Allocation& allocation, int device, const std::set<int>& peers) {
  const std::string where = "memory of device " + std::to_string(allocation.device);
  switch (allocation.kind) {
    case Allocation::kNothing:
    case Allocation::kPinned:
    case Allocation::kOpened:
      return "";
    case Allocation::kDevice:
      if (allocation.device == device || peers.count(allocation.device) != 0) return "";
      return where + " without cuCtxEnablePeerAccess";
    case Allocation::kVirtual:
      if (allocation.devices.count(device) != 0) return "";
      return where + " for which cuMemSetAccess does not name device " + std::to_string(device);
  }
  return "";
}

uintptr_t TakeAddresses(size_t bytes, size_t alignment) {
  const std::lock_guard<std::mutex> lock(addresses_mutex);
  const uintptr_t first = (next_address + alignment - 1) / alignment * alignment;
  if (first + bytes + kPage - range > kRange) return 0;
  next_address = first + PagesOf(bytes) + kPage;
  return first;
}

// Every access behind the end (to 256 bytes) meets a page that is not there.
Result Allocate(size_t bytes, int device, Allocation* made) {
  if (UsedBytes(device) + bytes > DeviceBytes()) return Result::kOutOfMemory;
  const size_t kept = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  made->kind = Allocation::kDevice;
  made->bytes = bytes;
  made->device = device;
  made->page_bytes = PagesOf(bytes);
  made->pages = TakeAddresses(made->page_bytes, kPage);
  made->file = NewFile(made->page_bytes + kPage, device);  // the last one is for openers.h
  if (made->pages == 0 || made->file < 0) return Result::kOutOfMemory;
  if (!MapPages(made->pages, made->page_bytes, made->file, 0, false, true)) {
    return Result::kOutOfMemory;
  }
  made->begin = made->pages + made->page_bytes - kept;
  std::memset(HostView(made->pages), kPoison, made->page_bytes);
  Insert(*made);
  return Result::kSuccess;
}

bool MapPages(uintptr_t pages, size_t bytes, int file, size_t offset, bool for_host, bool access) {
  const int rights = access ? PROT_READ | PROT_WRITE : PROT_NONE;
  const auto at = static_cast<off_t>(offset);
  const auto map = [&](uintptr_t where) {
    void* const wished = reinterpret_cast<void*>(where);
    return mmap(wished, bytes, rights, MAP_SHARED | MAP_FIXED, file, at) == wished;
  };
  return map(pages + kRange) && (!for_host || map(pages));
}

void UnmapPages(uintptr_t pages, size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  for (const uintptr_t where : {pages, pages + kRange}) {
    mmap(reinterpret_cast<void*>(where), bytes, PROT_NONE, kFlags, -1, 0);
  }
}

// The name tells whoever gets the file on which device its memory is.
int NewFile(size_t bytes, int device) {
  const std::string name = "collops-gpu-" + std::to_string(device);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) == 0) return file;
  close(file);
  return -1;
}

size_t DeviceBytes() {
  const char* text = std::getenv("COLLOPS_SIM_MEMORY");
  return text == nullptr ? size_t{4} << 30 : std::strtoull(text, nullptr, 10);
}

}  // namespace collops_sim
