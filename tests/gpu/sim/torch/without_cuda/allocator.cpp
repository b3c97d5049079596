#include "torch/without_cuda/allocator.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "torch/device.h"
#include "torch/libcuda.h"

namespace torch_on_sim {
namespace {

constexpr size_t kUnit = 512;

struct Block {
  uint64_t address = 0;
  size_t bytes = 0;
  c10::Stream stream;
  std::vector<c10::Stream> users;  // other streams, by record_stream
};

struct Awaited {
  Block* block;
  std::vector<void*> events;
};

class Pool {
 public:
  Block* Take(size_t bytes, const c10::Stream& stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Sweep();
    std::vector<Block*>& spare = spare_[KeyOf(bytes, stream)];
    if (spare.empty()) return nullptr;
    Block* const found = spare.back();
    spare.pop_back();
    return found;
  }

  void Free(Block* block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    // What a graph uses stays: its replays come later.
    if (IsCaptured(block->stream)) return;
    if (std::any_of(block->users.begin(), block->users.end(), IsCaptured)) return;
    Awaited awaited = {block, {}};
    for (const c10::Stream& user : block->users) {
      const OnDevice scope(user.device_index());
      Check(cuEventCreate(&awaited.events.emplace_back(nullptr), kNoTiming), "cuEventCreate");
      Check(cuEventRecord(awaited.events.back(), HandleOf(user)), "cuEventRecord");
    }
    block->users.clear();
    awaited_.push_back(std::move(awaited));
  }

  void Record(Block* block, const c10::Stream& stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stream != block->stream) block->users.push_back(stream);
  }

 private:
  using Key = std::tuple<int, c10::StreamId, size_t>;

  static Key KeyOf(size_t bytes, const c10::Stream& stream) {
    return {stream.device_index(), stream.id(), bytes};
  }

  // Brings back what all its users are done with.
  void Sweep() {
    std::vector<Awaited> left;
    for (Awaited& awaited : awaited_) {
      const OnDevice scope(awaited.block->stream.device_index());
      while (!awaited.events.empty() && cuEventQuery(awaited.events.back()) != kNotReady) {
        Check(cuEventDestroy_v2(awaited.events.back()), "cuEventDestroy");
        awaited.events.pop_back();
      }
      if (awaited.events.empty()) {
        spare_[KeyOf(awaited.block->bytes, awaited.block->stream)].push_back(awaited.block);
      } else {
        left.push_back(std::move(awaited));
      }
    }
    awaited_ = std::move(left);
  }

  std::mutex mutex_;
  std::map<Key, std::vector<Block*>> spare_;
  std::vector<Awaited> awaited_;
};

// Never destroyed: tensors are freed until the process ends.
Pool& GetPool() {
  static Pool* const pool = new Pool;
  return *pool;
}

void Delete(void* block) {
  GetPool().Free(static_cast<Block*>(block));
}

class SimAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = CurrentDevice();
    const c10::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, Delete, where};
    const c10::Stream stream = CurrentStream(device);
    const size_t rounded = (bytes + kUnit - 1) / kUnit * kUnit;
    Block* block = GetPool().Take(rounded, stream);
    if (block == nullptr) {
      const OnDevice scope(device);
      block = new Block{0, rounded, stream, {}};
      int mode = kRelaxed;  // a capture under way allows it, as in torch's
      Check(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
      Check(cuMemAlloc_v2(&block->address, rounded), "cuMemAlloc");
      Check(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
    }
    return {reinterpret_cast<void*>(block->address), block, Delete, where};
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "the simulated allocator copies nothing");
  }
};

}  // namespace

c10::Allocator* DeviceAllocator() {
  static SimAllocator* const allocator = new SimAllocator;
  return allocator;
}

void RecordStream(const c10::DataPtr& memory, const c10::Stream& stream) {
  if (memory.get_context() == nullptr) return;
  GetPool().Record(static_cast<Block*>(memory.get_context()), stream);
}

REGISTER_ALLOCATOR(c10::kCUDA, DeviceAllocator());

}  // namespace torch_on_sim
