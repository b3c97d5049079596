#include "collops/kernels/cuda/memory_pool.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/core/process/per_process.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::cuda {
namespace {

// The smallest block, and what the addresses of all blocks are multiples of.
constexpr int64_t kBlockBytes = 512;

// The size of the blocks that hold so many bytes: four sizes from one power of two to the next, so
// that a block which is given back fits what comes later, and at most a fifth of it is unused.
int64_t SizeClass(int64_t bytes) {
  int64_t power = kBlockBytes;
  while (power * 2 <= bytes) power *= 2;
  const int64_t step = std::max(kBlockBytes, power / 4);
  return std::max(kBlockBytes, (bytes + step - 1) / step * step);
}

}  // namespace

// The caller cannot act on an error of this call.
Block::~Block() {
  for (Event event : spare_) static_cast<void>(driver_.event_destroy(event));
}

// Lets go of the events that are reached.
Status Block::Reap() {
  Status status;
  const auto is_past = [&](const Use& use) {
    const Result result = driver_.event_query(use.event);
    if (result == Result::kSuccess) spare_.push_back(use.event);
    if (result != Result::kSuccess && result != Result::kNotReady) {
      status = ToStatus(driver_, result, "cuEventQuery");
    }
    return result == Result::kSuccess;
  };
  uses_.erase(std::remove_if(uses_.begin(), uses_.end(), is_past), uses_.end());
  return status;
}

// One event for each stream. A stream that has been destroyed may have left its handle to another
// one, which then follows it here.
Status Block::Record(Stream stream) {
  const auto found = std::find_if(uses_.begin(), uses_.end(),
                                  [&](const Use& use) { return use.stream == stream; });
  Use use = {stream, nullptr};
  if (found != uses_.end()) {
    use = *found;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver_, driver_.stream_wait_event(stream, use.event, 0), "cuStreamWaitEvent"));
  } else if (!spare_.empty()) {
    use.event = spare_.back();
    spare_.pop_back();
  } else {
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver_, driver_.event_create(&use.event, kEventDisableTiming), "cuEventCreate"));
  }
  if (found == uses_.end()) uses_.push_back(use);
  return ToStatus(driver_, driver_.event_record(use.event, stream), "cuEventRecord");
}

// The legacy stream cannot take an event while a stream that it waits for is captured.
Status Block::RecordOnLegacy() {
  CaptureStatus status = CaptureStatus::kNone;
  is_unrecorded_ =
      driver_.stream_is_capturing(LegacyStream(), &status) == Result::kStreamCaptureImplicit;
  return is_unrecorded_ ? Ok() : Record(LegacyStream());
}

// The legacy stream follows those that a thread has by default, whichever thread that was.
void Block::UsedOn(Stream stream) {
  if (OfParent()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const DeviceScope scope(driver_, device_);
  const RelaxedCaptures relaxed(driver_);
  Status status = scope.status();
  if (status.ok()) status = Reap();
  Graph graph = nullptr;
  if (status.ok() && (stream == LegacyStream() || stream == PerThreadStream())) {
    status = RecordOnLegacy();
  } else if (status.ok()) {
    Runtime runtime(driver_);
    status = runtime.FindGraph(stream, &graph);
    if (status.ok() && graph != nullptr) runtime.KeepWithGraph(graph, shared_from_this());
    if (status.ok() && graph == nullptr) status = Record(stream);
  }
  if (!status.ok()) is_lost_ = true;
}

Status Block::OrderBehindUses(Stream stream) {
  COLLOPS_CHECK_ARG(
      !OfParent(), ERROR_INVALID_TENSOR_ADDR,
      "this memory of a GPU was made before fork(), and the child has no access to it");
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_other = [&](const Use& use) { return use.stream != stream; };
  if (std::none_of(uses_.begin(), uses_.end(), is_other)) return Ok();
  const DeviceScope scope(driver_, device_);
  COLLOPS_RETURN_IF_ERROR(scope.status());
  const RelaxedCaptures relaxed(driver_);
  COLLOPS_RETURN_IF_ERROR(Reap());
  if (std::none_of(uses_.begin(), uses_.end(), is_other)) return Ok();
  Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(Runtime(driver_).FindGraph(stream, &graph));
  COLLOPS_CHECK_ARG(graph == nullptr, ERROR_INVALID_STREAM,
                    "another stream still has work on this memory, and a graph cannot wait for it: "
                    "synchronise before the capture");
  for (const Use& use : uses_) {
    if (!is_other(use)) continue;
    COLLOPS_RETURN_IF_ERROR(
        ToStatus(driver_, driver_.stream_wait_event(stream, use.event, 0), "cuStreamWaitEvent"));
  }
  return Ok();
}

bool Block::IsPast() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_lost_ || (uses_.empty() && !is_unrecorded_)) return !is_lost_;
  const DeviceScope scope(driver_, device_);
  const RelaxedCaptures relaxed(driver_);
  if (!scope.status().ok() || !Reap().ok() || (is_unrecorded_ && !RecordOnLegacy().ok())) {
    is_lost_ = true;
  }
  return !is_lost_ && !is_unrecorded_ && uses_.empty();
}

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
