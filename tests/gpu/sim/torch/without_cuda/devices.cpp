// What a CUDA build of torch has and one for CPUs lacks: this thread's device and streams, memory,
// and what torch's C++ asks of devices of type CUDA.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "torch/device.h"
#include "torch/libcuda.h"

namespace torch_on_sim {
namespace {

thread_local int chosen = 0;
thread_local std::array<c10::StreamId, kMostDevices> current_streams{};

void* ContextOf(int device) {
  Check(cuInit(0), "cuInit");
  void* context = nullptr;
  Check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

// torch's caching allocator, in short: memory belongs to the stream that was current, and is given
// out there again as soon as it is freed; with record_stream, once that stream is done with it.
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

c10::Allocator* DeviceAllocator() {
  static SimAllocator* const allocator = new SimAllocator;
  return allocator;
}

void RecordStream(const c10::DataPtr& memory, const c10::Stream& stream) {
  if (memory.get_context() == nullptr) return;
  GetPool().Record(static_cast<Block*>(memory.get_context()), stream);
}

// Operators on memory of type CUDA.
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

int IndexOf(std::optional<c10::Device> device) {
  return device && device->has_index() ? device->index() : CurrentDevice();
}

Tensor EmptyOf(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> type,
               std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>,
               std::optional<c10::MemoryFormat> format) {
  const OnDevice scope(IndexOf(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), DeviceAllocator(), kKeys,
                                   c10::dtype_or_default(type), format);
}

Tensor EmptyStrided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                    std::optional<at::ScalarType> type, std::optional<c10::Layout>,
                    std::optional<c10::Device> device, std::optional<bool>) {
  const OnDevice scope(IndexOf(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                           C10_AS_INTARRAYREF_SLOW(strides), DeviceAllocator(),
                                           kKeys, c10::dtype_or_default(type));
}

Tensor& SetStorage(Tensor& x, c10::Storage storage, c10::SymInt offset, c10::SymIntArrayRef sizes,
                   c10::SymIntArrayRef strides) {
  c10::TensorImpl* const own = x.unsafeGetTensorImpl();
  own->set_storage_keep_dtype(std::move(storage));
  own->set_storage_offset(offset.expect_int());
  own->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
  return x;
}

const Tensor& Resize(const Tensor& x, c10::SymIntArrayRef sizes, std::optional<c10::MemoryFormat>) {
  const Tensor made = at::empty_symint(sizes, x.options());
  c10::TensorImpl* const own = x.unsafeGetTensorImpl();
  if (made.nbytes() > x.storage().nbytes()) own->set_storage_keep_dtype(made.storage());
  own->set_sizes_and_strides(made.sizes(), made.strides());
  return x;
}

void KeepForStream(Tensor& x, c10::Stream stream) {
  RecordStream(x.storage().data_ptr(), stream);
}

// Devices, streams and events: futures and the autograd engine use them through this class alone.
class SimGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    if (before != device) setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(CurrentDevice())};
  }
  void setDevice(c10::Device device) const override { Choose(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { Choose(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(NumDevices());
  }

  c10::Stream getStream(c10::Device device) const override {
    return CurrentStream(IndexOf(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return StreamOf(IndexOf(device), 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return NewStream(IndexOf(device));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return NewStream(IndexOf(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = CurrentStream(stream.device_index());
    SetCurrentStream(stream);
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    const OnDevice scope(stream.device_index());
    return IsDone(cuStreamQuery(HandleOf(stream)), "cuStreamQuery");
  }
  void synchronizeStream(const c10::Stream& stream) const override { Synchronize(stream); }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    const OnDevice scope(device);
    Check(cuCtxSynchronize(), "cuCtxSynchronize");
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    const OnDevice scope(stream.device_index());
    if (*event == nullptr) Check(cuEventCreate(event, kNoTiming), "cuEventCreate");
    Check(cuEventRecord(*event, HandleOf(stream)), "cuEventRecord");
  }
  void block(void* event, const c10::Stream& stream) const override {
    const OnDevice scope(stream.device_index());
    if (event != nullptr) Check(cuStreamWaitEvent(HandleOf(stream), event, 0), "cuStreamWaitEvent");
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || IsDone(cuEventQuery(event), "cuEventQuery");
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Check(cuEventSynchronize(event), "cuEventSynchronize");
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) cuEventDestroy_v2(event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    RecordStream(memory, stream);
  }

 private:
  static c10::DeviceIndex IndexOf(c10::Device device) {
    return device.has_index() ? device.index() : static_cast<c10::DeviceIndex>(CurrentDevice());
  }
  static bool IsDone(int code, const char* call) {
    if (code != kNotReady) Check(code, call);
    return code != kNotReady;
  }
};

}  // namespace

int NumDevices() {
  Check(cuInit(0), "cuInit");
  int count = 0;
  Check(cuDeviceGetCount(&count), "cuDeviceGetCount");
  return std::min(count, kMostDevices);
}

int CurrentDevice() {
  return chosen;
}

void Choose(int device) {
  TORCH_CHECK(device >= 0 && device < kMostDevices, "there is no device ", device);
  Check(cuCtxSetCurrent(ContextOf(device)), "cuCtxSetCurrent");
  chosen = device;
}

c10::Stream CurrentStream(int device) {
  return StreamOf(device, current_streams.at(static_cast<size_t>(device)));
}

void SetCurrentStream(const c10::Stream& stream) {
  current_streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
}

c10::Stream NewStream(int device) {
  const OnDevice scope(device);
  void* made = nullptr;
  Check(cuStreamCreate(&made, kNonBlocking), "cuStreamCreate");
  return StreamOf(device, static_cast<c10::StreamId>(reinterpret_cast<intptr_t>(made)));
}

void* HandleOf(const c10::Stream& stream) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
}

REGISTER_ALLOCATOR(c10::kCUDA, DeviceAllocator());

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &EmptyOf);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("set_.source_Storage_storage_offset", &SetStorage);
  library.impl("resize_", &Resize);
  library.impl("record_stream", &KeepForStream);
}

C10_REGISTER_GUARD_IMPL(CUDA, SimGuard)

}  // namespace torch_on_sim

// For tests in Python, which have no other way to torch's current stream of this thread.
extern "C" {
void TorchSimChoose(int device) {
  torch_on_sim::Choose(device);
}
int TorchSimDevice() {
  return torch_on_sim::CurrentDevice();
}
int64_t TorchSimStream(int device) {
  return torch_on_sim::CurrentStream(device).id();
}
void TorchSimSetStream(int device, int64_t id) {
  torch_on_sim::SetCurrentStream(torch_on_sim::StreamOf(device, id));
}
int64_t TorchSimNewStream(int device) {
  return torch_on_sim::NewStream(device).id();
}
int TorchSimIsCaptured(int device, int64_t id) {
  return torch_on_sim::IsCaptured(torch_on_sim::StreamOf(device, id)) ? 1 : 0;
}
}

// Says that there are devices of type CUDA, so that the autograd engine uses them.
namespace at {

// torch looks for it by this name.
struct CUDAHooks : public CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}

  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  void init() const override { torch_on_sim::NumDevices(); }
  DeviceIndex deviceCount() const override {
    return static_cast<DeviceIndex>(torch_on_sim::NumDevices());
  }
  int getNumGPUs() const override { return torch_on_sim::NumDevices(); }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(torch_on_sim::CurrentDevice());
  }
  void setCurrentDevice(DeviceIndex device) const override { torch_on_sim::Choose(device); }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at

// DistributedDataParallel asks for the times of its passes by the type of the device; here nobody
// measures on the stream.
namespace c10d {
namespace {

class SimTimer : public Timer {
 public:
  explicit SimTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kCUDA, SimTimer)

}  // namespace
}  // namespace c10d
