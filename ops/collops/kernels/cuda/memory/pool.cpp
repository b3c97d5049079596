#include "collops/kernels/cuda/memory/pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/driver/device_scope.h"
#include "collops/kernels/cuda/driver/error.h"
#include "collops/kernels/cuda/driver/relaxed_captures.h"
#include "collops/kernels/cuda/memory/size_class.h"

namespace collops::cuda {
namespace {

constexpr int64_t kSlabBytes = int64_t{64} << 20;
// A longer block has a slab of its own, so that it can be freed without others.
constexpr int64_t kMostShared = kSlabBytes / 4;

// Memory of one call of the driver, of which the first `used` bytes are blocks.
struct Slab {
  int device = 0;
  DevicePointer pointer = 0;
  int64_t bytes = 0;
  int64_t used = 0;
  std::vector<std::unique_ptr<Block>> blocks;
};

using Blocks = std::vector<Block*>;

struct All {
  std::mutex growing;  // held while the driver is called for memory
  std::mutex mutex;
  std::vector<Slab> slabs;
  std::map<std::pair<int, int64_t>, Blocks> spare;  // by device and bytes
  // Blocks that came back. A thread of the driver may bring them, which must not wait for a lock
  // that is held while the driver is called.
  std::mutex returned_mutex;
  Blocks returned;
};
PerProcess<All> all_here;

// What a child of fork() brings back is its parent's.
std::shared_ptr<Block> Lend(All* all, Block* block) {
  return {block, [all](Block* back) {
            if (all != &all_here.Get()) return;
            const std::lock_guard<std::mutex> lock(all->returned_mutex);
            all->returned.push_back(back);
          }};
}

void TakeReturned(All* all) {
  Blocks returned;
  {
    const std::lock_guard<std::mutex> lock(all->returned_mutex);
    returned.swap(all->returned);
  }
  for (Block* block : returned) all->spare[{block->device(), block->bytes()}].push_back(block);
}

Block* TakeSpare(All* all, int device, int64_t bytes) {
  Blocks& spare = all->spare[{device, bytes}];
  const auto found = std::find_if(spare.begin(), spare.end(), [](Block* b) { return b->IsPast(); });
  if (found == spare.end()) return nullptr;
  Block* const block = *found;
  spare.erase(found);
  return block;
}

Block* Carve(All* all, const DriverApi& driver, int device, int64_t bytes) {
  const auto slab = std::find_if(all->slabs.begin(), all->slabs.end(), [&](const Slab& one) {
    const int64_t room = bytes > kMostShared && one.used > 0 ? 0 : one.bytes - one.used;
    return one.device == device && room >= bytes;
  });
  if (slab == all->slabs.end()) return nullptr;
  const DevicePointer pointer = slab->pointer + static_cast<DevicePointer>(slab->used);
  slab->used += bytes;
  slab->blocks.push_back(std::make_unique<Block>(driver, device, pointer, bytes));
  return slab->blocks.back().get();
}

Block* FindBlock(All* all, const DriverApi& driver, int device, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(all->mutex);
  TakeReturned(all);
  Block* const block = TakeSpare(all, device, bytes);
  return block != nullptr ? block : Carve(all, driver, device, bytes);
}

// The device's context is the thread's current one.
Status AddSlab(All* all, const DriverApi& driver, int device, int64_t bytes) {
  Slab slab;
  slab.device = device;
  slab.bytes = bytes > kMostShared ? bytes : kSlabBytes;
  Result result = driver.mem_alloc(&slab.pointer, static_cast<size_t>(slab.bytes));
  if (result == Result::kOutOfMemory && slab.bytes > bytes) {
    slab.bytes = bytes;
    result = driver.mem_alloc(&slab.pointer, static_cast<size_t>(slab.bytes));
  }
  COLLOPS_RETURN_IF_ERROR(ToStatus(driver, result, "cuMemAlloc"));
  const std::lock_guard<std::mutex> lock(all->mutex);
  all->slabs.push_back(std::move(slab));
  return Ok();
}

// Whether every block of the slab is spare and past.
bool IsUnused(All* all, const Slab& slab) {
  return std::all_of(slab.blocks.begin(), slab.blocks.end(), [&](const auto& block) {
    const Blocks& spare = all->spare[{slab.device, block->bytes()}];
    return std::find(spare.begin(), spare.end(), block.get()) != spare.end() && block->IsPast();
  });
}

// Takes the slabs that no one uses out of the pool.
std::vector<Slab> TakeUnused(All* all) {
  const std::lock_guard<std::mutex> lock(all->mutex);
  TakeReturned(all);
  const auto first_unused = std::partition(all->slabs.begin(), all->slabs.end(),
                                           [&](const Slab& slab) { return !IsUnused(all, slab); });
  std::vector<Slab> unused(std::make_move_iterator(first_unused),
                           std::make_move_iterator(all->slabs.end()));
  all->slabs.erase(first_unused, all->slabs.end());
  for (const Slab& slab : unused) {
    for (const auto& block : slab.blocks) {
      Blocks& spare = all->spare[{slab.device, block->bytes()}];
      spare.erase(std::find(spare.begin(), spare.end(), block.get()));
    }
  }
  return unused;
}

}  // namespace

Status Pool::Take(const DriverApi& driver, int device, int64_t bytes, const Before& before,
                  std::shared_ptr<Block>* block) {
  const int64_t rounded = SizeClass(bytes);
  All& all = all_here.Get();
  Block* found = FindBlock(&all, driver, device, rounded);
  if (found == nullptr) {
    const std::lock_guard<std::mutex> lock(all.growing);
    const DeviceScope scope(driver, device);
    COLLOPS_RETURN_IF_ERROR(scope.status());
    const RelaxedCaptures relaxed(driver);
    // Another thread may have made room meanwhile, or given some back.
    while ((found = FindBlock(&all, driver, device, rounded)) == nullptr) {
      COLLOPS_RETURN_IF_ERROR(before());
      COLLOPS_RETURN_IF_ERROR(AddSlab(&all, driver, device, rounded));
    }
  }
  *block = Lend(&all, found);
  return Ok();
}

Status Pool::Empty(const DriverApi& driver, const Before& before, int64_t* freed) {
  *freed = 0;
  All& all = all_here.Get();
  const std::lock_guard<std::mutex> lock(all.growing);
  COLLOPS_RETURN_IF_ERROR(before());
  for (const Slab& slab : TakeUnused(&all)) {
    const DeviceScope scope(driver, slab.device);
    COLLOPS_RETURN_IF_ERROR(scope.status());
    const RelaxedCaptures relaxed(driver);
    COLLOPS_RETURN_IF_ERROR(ToStatus(driver, driver.mem_free(slab.pointer), "cuMemFree"));
    *freed += slab.bytes;
  }
  return Ok();
}

}  // namespace collops::cuda
