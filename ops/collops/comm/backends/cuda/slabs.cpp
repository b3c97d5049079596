#include "collops/comm/backends/cuda/slabs.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda_peers {
namespace {

using cuda::DevicePointer;
using cuda::ToStatus;

constexpr int64_t kSlabBytes = int64_t{64} << 20;
constexpr int64_t kSharedSlabBytes = int64_t{256} << 10;
constexpr int64_t kAlignment = 256;

// A slab, of which the first `used` bytes were handed out.
struct Slab {
  SlabPart whole;
  int64_t used = 0;
};
struct SharedSlab {
  SharedPart whole;
  int64_t used = kSharedSlabBytes;
};

struct All {
  std::mutex mutex;
  std::map<int, std::vector<Slab>> slabs;                  // by device
  std::multimap<std::pair<int, int64_t>, SlabPart> spare;  // by device and bytes
  SharedSlab shared;
  std::multimap<int64_t, SharedPart> spare_shared;  // by bytes
  std::map<std::string, DevicePointer> opened;
};
PerProcess<All> all_here;

template <typename Map>
bool TakeSpare(Map* map, const typename Map::key_type& key, typename Map::mapped_type* part) {
  const auto found = map->find(key);
  if (found == map->end()) return false;
  *part = found->second;
  map->erase(found);
  return true;
}

int64_t RoundUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status AddSlab(const cuda::DriverApi& driver, int64_t bytes, std::vector<Slab>* slabs) {
  Slab slab;
  slab.whole.bytes = std::max(bytes, kSlabBytes);
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(driver, driver.mem_alloc(&slab.whole.slab, static_cast<size_t>(slab.whole.bytes)),
               "cuMemAlloc"));
  slab.whole.pointer = slab.whole.slab;
  const Status exported = ToStatus(
      driver, driver.ipc_get_mem_handle(&slab.whole.handle, slab.whole.slab), "cuIpcGetMemHandle");
  // Threads of one process need no handle; a process that cannot open an empty one says so.
  if (!exported.ok()) slab.whole.handle = {};
  slabs->push_back(slab);
  return Ok();
}

}  // namespace

Status Slabs::Take(const cuda::DriverApi& driver, int device, int64_t bytes, const Before& before,
                   SlabPart* part) {
  const int64_t rounded = RoundUp(bytes);
  All& all = all_here.Get();
  const auto has_room = [&](const Slab& slab) { return slab.whole.bytes - slab.used >= rounded; };
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(all.mutex);
      if (TakeSpare(&all.spare, {device, rounded}, part)) return Ok();
      std::vector<Slab>& slabs = all.slabs[device];
      const auto slab = std::find_if(slabs.begin(), slabs.end(), has_room);
      if (slab != slabs.end()) {
        *part = slab->whole;
        part->pointer += static_cast<DevicePointer>(slab->used);
        part->bytes = rounded;
        slab->used += rounded;
        return Ok();
      }
    }
    COLLOPS_RETURN_IF_ERROR(before());
    const std::lock_guard<std::mutex> lock(all.mutex);
    COLLOPS_RETURN_IF_ERROR(AddSlab(driver, rounded, &all.slabs[device]));
  }
}

void Slabs::GiveBack(int device, const SlabPart& part) {
  All& all = all_here.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.spare.insert({{device, part.bytes}, part});
}

Status Slabs::TakeShared(const cuda::DriverApi& driver, int64_t bytes, const Before& before,
                         SharedPart* part) {
  const int64_t rounded = RoundUp(bytes);
  All& all = all_here.Get();
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(all.mutex);
      if (TakeSpare(&all.spare_shared, rounded, part)) return Ok();
      SharedSlab& slab = all.shared;
      if (kSharedSlabBytes - slab.used >= rounded) {
        part->host = static_cast<char*>(slab.whole.host) + slab.used;
        part->device = slab.whole.device + static_cast<DevicePointer>(slab.used);
        slab.used += rounded;
        return Ok();
      }
    }
    COLLOPS_RETURN_IF_ERROR(before());
    const std::lock_guard<std::mutex> lock(all.mutex);
    SharedSlab fresh;
    constexpr uint32_t kFlags = cuda::kHostAllocPortable | cuda::kHostAllocDeviceMap;
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        driver,
        driver.mem_host_alloc(&fresh.whole.host, static_cast<size_t>(kSharedSlabBytes), kFlags),
        "cuMemHostAlloc"));
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        driver, driver.mem_host_get_device_pointer(&fresh.whole.device, fresh.whole.host, 0),
        "cuMemHostGetDevicePointer"));
    fresh.used = 0;
    all.shared = fresh;
  }
}

void Slabs::GiveBackShared(int64_t bytes, const SharedPart& part) {
  All& all = all_here.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.spare_shared.insert({RoundUp(bytes), part});
}

Status Slabs::Open(const cuda::DriverApi& driver, const std::string& key,
                   const cuda::IpcMemoryHandle& handle, const Before& before, DevicePointer* slab) {
  All& all = all_here.Get();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.opened.find(key);
    if (found != all.opened.end()) {
      *slab = found->second;
      return Ok();
    }
  }
  COLLOPS_RETURN_IF_ERROR(before());
  const std::lock_guard<std::mutex> lock(all.mutex);
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(driver, driver.ipc_open_mem_handle(slab, handle, cuda::kIpcLazyPeerAccess),
               "cuIpcOpenMemHandle"));
  all.opened[key] = *slab;
  return Ok();
}

}  // namespace collops::cuda_peers
