// Virtual memory management in a simulated libcuda, from its published signatures: an allocation is
// a file, which is mapped at reserved addresses and accessible after cuMemSetAccess.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "collops/kernels/cuda/driver.h"
#include "driver/context.h"
#include "driver/memory.h"

using namespace collops_sim;
using collops::cuda::DevicePointer;

namespace {

// CUmemGenericAllocationHandle, CUmemLocation, CUmemAllocationProp and CUmemAccessDesc, with the
// numbers of their enumerations.
using AllocationHandle = uint64_t;
struct Location {
  int32_t type;
  int32_t id;
};
struct AllocationProperties {
  int32_t type;
  int32_t requested_handle_types;
  Location location;
  void* win32_metadata;
  uint8_t flags[8];
};
struct AccessDescription {
  Location location;
  int32_t rights;
};
constexpr int32_t kPinnedType = 1;
constexpr int32_t kFabric = 8;
constexpr int32_t kOfDevice = 1;
constexpr int32_t kReadWrite = 3;

constexpr unsigned kSlowCall = kNeedsInit | kNeedsContext | kIsUnsafe | kMayWait;
constexpr size_t kGranularity = size_t{2} << 20;

struct Handle {
  int file = -1;
  size_t bytes = 0;
  int device = 0;
};

struct Table {
  std::mutex mutex;
  uint64_t next = 1;
  std::map<uint64_t, Handle> handles;
  std::map<uint64_t, size_t> reserved;
};
Table& GetTable() {
  static auto* const table = new Table;
  return *table;
}

uint64_t Keep(const Handle& handle) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  table.handles[table.next] = handle;
  return table.next++;
}

Result FindHandle(uint64_t number, Handle* handle) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.handles.find(number);
  if (found == table.handles.end()) return Refuse(kInvalidValue, "no such allocation");
  *handle = found->second;
  return Result::kSuccess;
}

bool IsReserved(uint64_t pointer, size_t bytes) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto next = table.reserved.upper_bound(pointer);
  if (next == table.reserved.begin()) return false;
  const auto& [begin, length] = *std::prev(next);
  return pointer - begin <= length && bytes <= length - (pointer - begin);
}

}  // namespace

extern "C" {

Result cuMemCreate(AllocationHandle* handle, size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
  const Result result = Enter("cuMemCreate", kSlowCall);
  if (result != Result::kSuccess) return result;
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) {
    return Refuse(kInvalidValue, "the size is no multiple of the granularity");
  }
  if (properties->type != kPinnedType || properties->location.type != kOfDevice ||
      PrimaryOf(properties->location.id) == nullptr) {
    return Refuse(kInvalidValue, "only pinned memory of a device is simulated");
  }
  if (properties->requested_handle_types == kFabric) return Result::kNotSupported;
  const int file = NewFile(bytes, properties->location.id);
  if (file < 0) return Result::kOutOfMemory;
  *handle = Keep({file, bytes, properties->location.id});
  return result;
}
// The mappings of a released allocation stay until they are unmapped.
Result cuMemRelease(AllocationHandle number) {
  const Result result = Enter("cuMemRelease", kNeedsInit);
  Handle handle;
  if (result != Result::kSuccess || FindHandle(number, &handle) != Result::kSuccess) {
    return result == Result::kSuccess ? kInvalidValue : result;
  }
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  close(handle.file);
  table.handles.erase(number);
  return result;
}
Result cuMemAddressReserve(DevicePointer* pointer, size_t bytes, size_t alignment, DevicePointer,
                           unsigned long long) {
  const Result result = Enter("cuMemAddressReserve", kNeedsInit);
  if (result != Result::kSuccess) return result;
  if (bytes == 0 || bytes % kGranularity != 0) {
    return Refuse(kInvalidValue, "the size is no multiple of the granularity");
  }
  *pointer = TakeAddresses(bytes, alignment > kGranularity ? alignment : kGranularity);
  if (*pointer == 0) return Result::kOutOfMemory;
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  table.reserved[*pointer] = bytes;
  return result;
}
Result cuMemAddressFree(DevicePointer pointer, size_t bytes) {
  const Result result = Enter("cuMemAddressFree", kNeedsInit);
  if (result != Result::kSuccess) return result;
  if (Find(pointer, 0).kind != Allocation::kNothing) {
    return Refuse(kInvalidValue, "memory is still mapped there");
  }
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.reserved.find(pointer);
  if (found == table.reserved.end() || found->second != bytes) return kInvalidValue;
  table.reserved.erase(found);
  return result;
}
Result cuMemMap(DevicePointer pointer, size_t bytes, size_t offset, AllocationHandle number,
                unsigned long long) {
  Result result = Enter("cuMemMap", kSlowCall);
  Handle handle;
  if (result == Result::kSuccess) result = FindHandle(number, &handle);
  if (result != Result::kSuccess) return result;
  if (!IsReserved(pointer, bytes) || offset != 0 || bytes != handle.bytes ||
      Find(pointer, 0).kind != Allocation::kNothing) {
    return Refuse(kInvalidValue, "the addresses are not reserved, taken, or too few");
  }
  Allocation made;
  made.kind = Allocation::kVirtual;
  made.begin = made.pages = pointer;
  made.bytes = made.page_bytes = bytes;
  made.device = handle.device;
  made.file = dup(handle.file);
  made.accessible = false;
  if (!MapPages(pointer, bytes, made.file, 0, false, false)) return kMapFailed;
  Insert(made);
  return result;
}
Result cuMemUnmap(DevicePointer pointer, size_t bytes) {
  const Result result = Enter("cuMemUnmap", kSlowCall);
  if (result != Result::kSuccess) return result;
  const Allocation found = Find(pointer, bytes);
  if (found.kind != Allocation::kVirtual || found.begin != pointer || found.bytes != bytes) {
    return Refuse(kInvalidValue, "this is no mapping of cuMemMap");
  }
  bool in_use = false;
  const Allocation removed = Remove(pointer, &in_use);
  if (in_use) {
    Mistake("memory is unmapped that a stream has yet to use");
    return kInvalidValue;
  }
  UnmapPages(removed.pages, removed.page_bytes);
  close(removed.file);
  return result;
}
Result cuMemSetAccess(DevicePointer pointer, size_t bytes, const AccessDescription* descriptions,
                      size_t count) {
  const Result result = Enter("cuMemSetAccess", kSlowCall);
  if (result != Result::kSuccess) return result;
  const Allocation found = Find(pointer, bytes);
  if (found.kind != Allocation::kVirtual) {
    return Refuse(kInvalidValue, "this is no mapping of cuMemMap");
  }
  for (size_t i = 0; i < count; ++i) {
    const int device = descriptions[i].location.id;
    if (PrimaryOf(device) == nullptr) return Result::kInvalidDevice;
    if (device != found.device && !CanAccessPeer(device, found.device)) {
      return Refuse(Result::kNotSupported, "the device cannot reach this memory");
    }
    if (descriptions[i].rights != kReadWrite) continue;
    if (mprotect(HostView(found.pages), found.page_bytes, PROT_READ | PROT_WRITE) != 0) {
      return kUnknown;
    }
    SetAccessible(found.begin, device);
  }
  return result;
}

}  // extern "C"
