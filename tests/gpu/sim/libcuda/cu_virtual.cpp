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
using namespace collops::cuda;

namespace {

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
  if (found == table.handles.end()) return Refuse(Result::kInvalidValue, "no such allocation");
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

Result cuMemGetAllocationGranularity(size_t* bytes, const AllocationProperties* properties,
                                     Granularity) {
  const Result result = Enter("cuMemGetAllocationGranularity", kNeedsInit);
  if (result != Result::kSuccess) return result;
  if (PrimaryOf(properties->location.id) == nullptr) return Result::kInvalidDevice;
  *bytes = kGranularity;
  return result;
}
Result cuMemCreate(AllocationHandle* handle, size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
  const Result result = Enter("cuMemCreate", kSlowCall);
  if (result != Result::kSuccess) return result;
  if (bytes == 0 || bytes % kGranularity != 0 || flags != 0) {
    return Refuse(Result::kInvalidValue, "the size is no multiple of the granularity");
  }
  if (properties->type != AllocationType::kPinned ||
      properties->location.type != LocationType::kDevice ||
      PrimaryOf(properties->location.id) == nullptr) {
    return Refuse(Result::kInvalidValue, "only pinned memory of a device is simulated");
  }
  if (properties->requested_handle_types == HandleType::kFabric) return Result::kNotSupported;
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
    return result == Result::kSuccess ? Result::kInvalidValue : result;
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
    return Refuse(Result::kInvalidValue, "the size is no multiple of the granularity");
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
    return Refuse(Result::kInvalidValue, "memory is still mapped there");
  }
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.reserved.find(pointer);
  if (found == table.reserved.end() || found->second != bytes) return Result::kInvalidValue;
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
    return Refuse(Result::kInvalidValue, "the addresses are not reserved, taken, or too few");
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
    return Refuse(Result::kInvalidValue, "this is no mapping of cuMemMap");
  }
  bool in_use = false;
  const Allocation removed = Remove(pointer, &in_use);
  if (in_use) {
    Mistake("memory is unmapped that a stream has yet to use");
    return Result::kInvalidValue;
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
    return Refuse(Result::kInvalidValue, "this is no mapping of cuMemMap");
  }
  for (size_t i = 0; i < count; ++i) {
    const int device = descriptions[i].location.id;
    if (PrimaryOf(device) == nullptr) return Result::kInvalidDevice;
    if (device != found.device && !CanAccessPeer(device, found.device)) {
      return Refuse(Result::kNotSupported, "the device cannot reach this memory");
    }
    if (descriptions[i].rights != AccessRights::kReadWrite) continue;
    if (mprotect(HostView(found.pages), found.page_bytes, PROT_READ | PROT_WRITE) != 0) {
      return Result::kUnknown;
    }
    SetAccessible(found.begin, device);
  }
  return result;
}

}  // extern "C"
