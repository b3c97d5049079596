#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda {

// Memory of one GPU, and which work on streams uses it: what was put on a stream has an event
// behind it. Thread-safe; waits for no one.
class Block : public std::enable_shared_from_this<Block> {
 public:
  Block(const DriverApi& driver, int device, DevicePointer pointer, int64_t bytes)
      : driver_(driver), device_(device), pointer_(pointer), bytes_(bytes) {}
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  int device() const { return device_; }
  DevicePointer pointer() const { return pointer_; }
  int64_t bytes() const { return bytes_; }

  // What the stream has so far uses this memory. A graph that the stream is captured into keeps the
  // memory. If the end of the use cannot be known, it is never past.
  void UsedOn(Stream stream);
  // What comes next on the stream follows the uses on other streams.
  Status OrderBehindUses(Stream stream);
  // Whether all uses are past, so that others may have the memory.
  bool IsPast();

 private:
  struct Use {
    Stream stream;
    Event event;
  };

  bool OfParent() const { return generation_ != ForkGeneration(); }
  Status Record(Stream stream);
  Status RecordOnLegacy();
  Status Reap();

  const DriverApi& driver_;
  const int device_;
  const DevicePointer pointer_;
  const int64_t bytes_;
  const uint64_t generation_ = ForkGeneration();

  std::mutex mutex_;
  std::vector<Use> uses_;
  std::vector<Event> spare_;
  bool is_unrecorded_ = false;  // a use on the legacy stream has no event yet
  bool is_lost_ = false;        // the end of a use cannot be known
};

// This process's memory of GPUs for tensors. It is taken from the driver in slabs, because a call
// of the driver that takes or frees memory may wait for kernels, and a kernel for a rank of this
// process. A block comes back when no one holds it; the next one of its size gets it once the work
// on streams that used it is past. Thread-safe.
class Pool {
 public:
  // Waits until the driver may be called for memory; an error keeps it from being called.
  using Before = std::function<Status()>;

  // Memory of at least `bytes` > 0 bytes, a multiple of kBlockBytes in address.
  static Status Take(const DriverApi& driver, int device, int64_t bytes, const Before& before,
                     std::shared_ptr<Block>* block);
  // Frees the slabs of which no one holds a block and no stream will use one; their bytes.
  static Status Empty(const DriverApi& driver, const Before& before, int64_t* freed);
};

}  // namespace collops::cuda
