#include "collops/comm/backends/cuda/communicator.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/devices.h"
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

// Takes what `find` finds; where it finds nothing `add` calls the driver for more, once `before`
// lets it.
template <typename Find, typename Add>
Status TakeOrAdd(const PeerMemory::Before& before, Find&& find, Add&& add) {
  All& all = all_here.Get();
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(all.mutex);
      if (find(&all)) return Ok();
    }
    COLLOPS_RETURN_IF_ERROR(before());
    const std::lock_guard<std::mutex> lock(all.mutex);
    COLLOPS_RETURN_IF_ERROR(add(&all));
  }
}

// The memory of this process's communicators. It is taken from a GPU in large slabs, which are
// never freed, because that would wait for the GPU; and neither are other processes' slabs closed.
// So a communicator seldom calls the driver for it; before such a call `before` waits until it may.
// Thread-safe; the GPU's context is the thread's current one.
Status TakeRegion(const cuda::DriverApi& driver, int device, int64_t bytes,
                  const PeerMemory::Before& before, SlabPart* part) {
  const int64_t rounded = RoundUp(bytes);
  const auto find = [&](All* all) {
    if (TakeSpare(&all->spare, {device, rounded}, part)) return true;
    for (Slab& slab : all->slabs[device]) {
      if (slab.whole.bytes - slab.used < rounded) continue;
      *part = slab.whole;
      part->pointer += static_cast<DevicePointer>(slab.used);
      part->bytes = rounded;
      slab.used += rounded;
      return true;
    }
    return false;
  };
  return TakeOrAdd(before, find,
                   [&](All* all) { return AddSlab(driver, rounded, &all->slabs[device]); });
}

void GiveBackRegion(int device, const SlabPart& part) {
  All& all = all_here.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.spare.insert({{device, part.bytes}, part});
}

Status TakeShared(const cuda::DriverApi& driver, int64_t bytes, const PeerMemory::Before& before,
                  SharedPart* part) {
  const int64_t rounded = RoundUp(bytes);
  const auto find = [&](All* all) {
    if (TakeSpare(&all->spare_shared, rounded, part)) return true;
    SharedSlab& slab = all->shared;
    if (kSharedSlabBytes - slab.used < rounded) return false;
    part->host = static_cast<char*>(slab.whole.host) + slab.used;
    part->device = slab.whole.device + static_cast<DevicePointer>(slab.used);
    slab.used += rounded;
    return true;
  };
  return TakeOrAdd(before, find, [&](All* all) -> Status {
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
    all->shared = fresh;
    return Ok();
  });
}

void GiveBackShared(int64_t bytes, const SharedPart& part) {
  All& all = all_here.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.spare_shared.insert({RoundUp(bytes), part});
}

// The address here of another process's slab. `key` names that process, its slab and this device.
Status OpenSlab(const cuda::DriverApi& driver, const std::string& key,
                const cuda::IpcMemoryHandle& handle, const PeerMemory::Before& before,
                DevicePointer* slab) {
  const auto find = [&](All* all) {
    const auto found = all->opened.find(key);
    if (found != all->opened.end()) *slab = found->second;
    return found != all->opened.end();
  };
  return TakeOrAdd(before, find, [&](All* all) -> Status {
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver, driver.ipc_open_mem_handle(slab, handle, cuda::kIpcLazyPeerAccess),
                 "cuIpcOpenMemHandle"));
    all->opened[key] = *slab;
    return Ok();
  });
}

// The most ranks that a group of this process had on one GPU, by device.
struct Sharers {
  std::mutex mutex;
  std::map<int, int32_t> most;
};
PerProcess<Sharers> sharers_here;

int32_t RanksOnDevice(const std::vector<Place>& places, const Place& of) {
  return static_cast<int32_t>(std::count_if(places.begin(), places.end(), [&](const Place& other) {
    return OnOneDevice(of.home, other.home);
  }));
}

}  // namespace

Status FindPlace(const cuda::DriverApi& driver, int device, int most_blocks, Place* place) {
  *place = {};
  place->draw = std::random_device()();
  place->device = device;
  place->most_blocks = most_blocks;
  Sharers& sharers = sharers_here.Get();
  const std::lock_guard<std::mutex> lock(sharers.mutex);
  place->sharers = sharers.most[device];
  return cuda::FindHome(driver, device, &place->home);
}

int SharersOf(const std::vector<Place>& places, const Place& of) {
  int32_t ranks = RanksOnDevice(places, of);
  for (const Place& place : places) {
    if (OnOneDevice(of.home, place.home)) ranks = std::max(ranks, place.sharers);
  }
  return ranks;
}

int BlocksOf(const std::vector<Place>& places, const Place& of) {
  return std::max(1, of.most_blocks / SharersOf(places, of));
}

void NoteSharers(const std::vector<Place>& places, const Place& own) {
  Sharers& sharers = sharers_here.Get();
  const std::lock_guard<std::mutex> lock(sharers.mutex);
  int32_t& most = sharers.most[own.device];
  most = std::max(most, RanksOnDevice(places, own));
}

const uint32_t* PeerMemory::device_stop() const {
  return reinterpret_cast<const uint32_t*>(shared_.device + offsetof(HostSide, stop));
}

uint64_t* PeerMemory::device_wait() const {
  return reinterpret_cast<uint64_t*>(shared_.device + offsetof(HostSide, wait));
}

cuda::Verdict* PeerMemory::device_verdict() const {
  return reinterpret_cast<cuda::Verdict*>(shared_.device + offsetof(HostSide, verdict));
}

// On a stream of its own, so that no work of others is waited for.
Status PeerMemory::Clear(uint32_t last_step) {
  cuda::Stream stream = nullptr;
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      driver_, driver_.stream_create(&stream, cuda::kStreamNonBlocking), "cuStreamCreate"));
  const auto bytes = static_cast<size_t>(own_.bytes);
  Status status =
      ToStatus(driver_, driver_.memset_d8_async(own_.pointer, 0, bytes, stream), "cuMemsetD8Async");
  // The lower half of OwnCounts::step.
  if (status.ok()) {
    status = ToStatus(driver_, driver_.memset_d32_async(own_.pointer, last_step, 1, stream),
                      "cuMemsetD32Async");
  }
  if (status.ok()) {
    status = ToStatus(driver_, driver_.stream_synchronize(stream), "cuStreamSynchronize");
  }
  static_cast<void>(driver_.stream_destroy(stream));  // the first error counts
  return status;
}

Status PeerMemory::Allocate(int device, int64_t bytes, uint32_t last_step,
                            const PeerMemory::Before& before) {
  device_ = device;
  if (shared_.host == nullptr) {
    COLLOPS_RETURN_IF_ERROR(TakeShared(driver_, sizeof(HostSide), before, &shared_));
  }
  host_ = new (shared_.host) HostSide();
  if (own_.pointer == 0) COLLOPS_RETURN_IF_ERROR(TakeRegion(driver_, device, bytes, before, &own_));
  return Clear(last_step);
}

Status PeerMemory::OpenPeer(const Place& own, const Place& peer, const SlabPart& part,
                            const PeerMemory::Before& before, char** region) {
  DevicePointer slab = part.slab;
  if (!InOneProcess(own.home, peer.home)) {
    // A process that has the same pid later has another mark.
    const std::string key =
        Concat(own.device, "/", peer.home.process, "/", peer.home.process_mark, "/", part.slab);
    COLLOPS_RETURN_IF_ERROR(OpenSlab(driver_, key, part.handle, before, &slab));
  } else if (own.device != peer.device) {
    int can = 0;
    COLLOPS_RETURN_IF_ERROR(ToStatus(driver_,
                                     driver_.device_can_access_peer(&can, own.device, peer.device),
                                     "cuDeviceCanAccessPeer"));
    COLLOPS_CHECK_ARG(can != 0, ERROR_UNSUPPORTED, "GPU ", own.device, " cannot address GPU ",
                      peer.device);
    cuda::Context context = nullptr;
    COLLOPS_RETURN_IF_ERROR(cuda::PrimaryContext(driver_, peer.device, &context));
    const cuda::Result enabled = driver_.ctx_enable_peer_access(context, 0);
    if (enabled != cuda::Result::kPeerAccessAlreadyEnabled) {
      COLLOPS_RETURN_IF_ERROR(ToStatus(driver_, enabled, "cuCtxEnablePeerAccess"));
    }
  }
  *region = reinterpret_cast<char*>(slab + (part.pointer - part.slab));
  return Ok();
}

Status PeerMemory::Open(int rank, const std::vector<Place>& places,
                        const std::vector<SlabPart>& parts, const PeerMemory::Before& before) {
  const auto own = static_cast<size_t>(rank);
  for (size_t peer = 0; peer < places.size(); ++peer) {
    if (peer == own) {
      regions_[peer] = reinterpret_cast<char*>(own_.pointer);
      continue;
    }
    const Status opened = OpenPeer(places[own], places[peer], parts[peer], before, &regions_[peer]);
    COLLOPS_CHECK_ARG(opened.ok(), opened.code(), "backend cuda: the memory of rank ", peer,
                      " (pid ", places[peer].home.process, ", GPU ", places[peer].device,
                      ") cannot be addressed by rank ", rank, " (GPU ", places[own].device,
                      "): ", opened.message(), "; use nccl");
  }
  return Ok();
}

void PeerMemory::Stop() {
  const std::lock_guard<std::mutex> lock(letting_go_);
  HostSide* const host = host_;
  if (host != nullptr) __atomic_store_n(&host->stop, 1u, __ATOMIC_RELEASE);
}

uint64_t PeerMemory::ReadWait() {
  const std::lock_guard<std::mutex> lock(letting_go_);
  const HostSide* const host = host_;
  return host == nullptr ? 0 : __atomic_load_n(&host->wait, __ATOMIC_RELAXED);
}

cuda::Verdict PeerMemory::ReadVerdict() const {
  cuda::Verdict verdict = {};
  const HostSide* const host = host_;
  if (host == nullptr) return verdict;
  const cuda::Verdict& written = host->verdict;
  verdict.step = __atomic_load_n(&written.step, __ATOMIC_ACQUIRE);
  if (verdict.step == 0) return verdict;
  for (int rank = 0; rank < cuda::kMostRanks; ++rank) {
    verdict.digests[rank] = __atomic_load_n(&written.digests[rank], __ATOMIC_RELAXED);
    verdict.balances[rank] = __atomic_load_n(&written.balances[rank], __ATOMIC_RELAXED);
  }
  return verdict;
}

void PeerMemory::LetGo(bool past, bool all_past) {
  Stop();
  {
    const std::lock_guard<std::mutex> lock(letting_go_);
    host_ = nullptr;
  }
  if (all_past && own_.pointer != 0) GiveBackRegion(device_, own_);
  if (past && shared_.host != nullptr) GiveBackShared(sizeof(HostSide), shared_);
  own_ = {};
  shared_ = {};
}

}  // namespace collops::cuda_peers
