#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda {

// Makes a device's primary context, which CUDA's runtime and so torch use, the thread's current
// one while it lives. A primary context is retained at its first use here and kept until the
// process ends, because streams, modules and memory of others may lie in it.
class DeviceScope {
 public:
  // `device` counts as cuDeviceGet does.
  DeviceScope(const DriverApi& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // Ok, or why the context could not be made current.
  const Status& status() const { return status_; }

 private:
  Status Enter(int device);

  const DriverApi& api_;
  bool pushed_ = false;
  Status status_;
};

// Runs `step` inside a DeviceScope; after an error `step` was not run.
Status OnDevice(const DriverApi& api, int device, const std::function<void()>& step);
// For this thread from now on: what would be refused while any thread captures is allowed.
void AllowCaptures(const DriverApi& api);

// The primary context of a device, retained. Thread-safe.
Status PrimaryContext(const DriverApi& api, int device, Context* context);

// The device of the thread's current context. A thread that has chosen none works on device 0 in
// CUDA's runtime, and so in torch.
Status CurrentDevice(const DriverApi& api, int* device);

// While it lives, this thread's calls that may wait or allocate are allowed while any stream is
// captured, and do not end the capture.
class RelaxedCaptures {
 public:
  explicit RelaxedCaptures(const DriverApi& api) : api_(api) { Exchange(); }
  ~RelaxedCaptures() { Exchange(); }
  RelaxedCaptures(const RelaxedCaptures&) = delete;
  RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;

 private:
  // The driver returns the mode that it had. The caller cannot act on an error.
  void Exchange() { static_cast<void>(api_.exchange_capture_mode(&mode_)); }

  const DriverApi& api_;
  CaptureMode mode_ = CaptureMode::kRelaxed;
};

// Where a rank runs, as the ranks tell each other in first contact.
struct Home {
  int64_t process;        // its pid
  uint64_t process_mark;  // with the pid, no other process of the host has it
  Uuid uuid;              // of its GPU
  int32_t multiprocessors;
};
Status FindHome(const DriverApi& api, int device, Home* home);
bool InOneProcess(const Home& a, const Home& b);
bool OnOneDevice(const Home& a, const Home& b);

// What processes get that share the GPU: whether NVIDIA MPS lets them run at the same time.
bool HasMps(const DriverApi& api, int device);
// What to do without it, for users.
inline constexpr char kWithoutMps[] =
    "the GPU runs one process at a time, which takes milliseconds in every call: make the ranks of "
    "a GPU threads of one process, or start NVIDIA MPS (nvidia-cuda-mps-control -d)";
// Warns, once in a process, of ranks that are processes and share the GPU of `rank`, the first one
// there; `homes` are those of all ranks.
void WarnOfSharing(const DriverApi& api, int device, int rank, const std::vector<Home>& homes);

// What `collops doctor` prints of the driver and of its GPUs, as names and texts: what is missing
// has a row of its own, whose text begins with "no: ". Makes no context on a GPU.
std::vector<std::pair<std::string, std::string>> GpuFacts();

// Handles of a process that nobody uses for the moment, by device. They are used again and not
// destroyed, where that waits for kernels or where nothing of CUDA may be called. Thread-safe.
template <class Handle>
class FreeList {
 public:
  // Null if there is none.
  Handle Take(int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Handle>& list = lists_[device];
    if (list.empty()) return nullptr;
    const Handle handle = list.back();
    list.pop_back();
    return handle;
  }

  void Give(int device, const std::vector<Handle>& handles) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Handle>& list = lists_[device];
    list.insert(list.end(), handles.begin(), handles.end());
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<Handle>> lists_;
};

}  // namespace collops::cuda
