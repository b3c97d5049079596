#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "collops/comm/backends/nccl/comm_handle.h"
#include "collops/comm/backends/nccl/library/api.h"
#include "collops/comm/streams/stream_engine.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/memory_pool.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::nccl {

// Lets others know of the last call, as memory cannot be allocated while a call waits for ranks.
class NotedRuntime : public cuda::Runtime {
 public:
  using Runtime::Runtime;
  ~NotedRuntime() override { cuda::RunningCalls::Forget(this); }
  Status RecordEvent(Event event, Stream stream) override {
    COLLOPS_RETURN_IF_ERROR(Runtime::RecordEvent(event, stream));
    cuda::RunningCalls::Note(api_, this, event);
    return Ok();
  }
  void DestroyEvent(Event event) override {
    cuda::RunningCalls::Forget(this);
    Runtime::DestroyEvent(event);
  }
};

// One rank's ncclComm_t, its GPU's driver and our kernels there. Threads as in StreamEngine.
class Engine : public StreamEngine {
 public:
  // `caller_comm`: the caller's ncclComm_t; null: connected in first contact.
  Engine(const Api& api, const cuda::DriverApi& driver, const CommunicatorSpec& spec,
         Comm caller_comm);

  const Api& api() const { return api_; }
  const cuda::DriverApi& driver() const { return driver_; }
  const cuda::Kernels& kernels() const { return kernels_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Comm comm() const { return handle_->comm(); }
  const std::shared_ptr<CommHandle>& handle() const { return handle_; }

  // A little device memory whose contents mean nothing: what a barrier sums.
  cuda::Block& stand_in() const { return *stand_in_; }

  // Turns the result of a call of NCCL into a Status, once NCCL has taken the call on the host: a
  // caller's ncclComm_t may need a wait for that, at most the time-out.
  Status Taken(Result result, const char* call) const;
  // For a wait that begins now: goes on until the time-out, a lost rank, or Ctrl-C.
  MayWait UntilTimeout() const;
  OnGpu InThread(int device) const;

  // The engine's first calls may be made.
  Status Connect(int device, std::shared_ptr<CommHandle> handle);

  bool connected() const override { return is_connected_; }
  Status FindDevice(int* device) const override;
  Status OnDevice(int device, const std::function<void()>& step) const override;
  Status Meet(control::Control* control, bool compares, int device) override;
  DeviceShare device_share() const override { return share_; }
  Status AsyncError() override;
  bool EndsByAbort() const override { return true; }
  void AbortCalls() override;
  void AllowCaptures() const override;

 protected:
  double Patience() const override;
  void LetGo(bool past) override;

 private:
  const Api& api_;
  const cuda::DriverApi& driver_;
  const int rank_;
  const int size_;
  const double timeout_s_;
  NotedRuntime runtime_;
  cuda::Kernels kernels_;
  control::Control* control_ = nullptr;  // owned by the communicator, as this is
  std::shared_ptr<CommHandle> caller_comm_;
  std::mutex letting_go_;  // AbortCalls() may run meanwhile
  std::shared_ptr<CommHandle> handle_;
  std::atomic<bool> is_connected_{false};
  std::shared_ptr<cuda::Block> stand_in_;
  DeviceShare share_;  // of one that a unique id has connected
};

}  // namespace collops::nccl
