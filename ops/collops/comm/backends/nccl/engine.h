#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "collops/comm/backends/nccl/library.h"
#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/streams/stream_engine.h"
#include "collops/core/deadline.h"
#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/memory_pool.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::nccl {

// Called while NCCL works in the background, with the name of the call: an error ends the wait.
using MayWait = std::function<Status(const char* call)>;
// Runs a step in a thread of its own with the rank's GPU as the current one; may be kept.
using OnGpu = std::function<Status(const std::function<void()>& step)>;

// An ncclComm_t. One that was created here blocks: without that, NCCL starts a thread for every
// group of calls. Where ranks first need each other a call waits for them inside NCCL, until
// BeginAbort(). It is destroyed with its last user. The caller's is never destroyed.
class CommHandle {
 public:
  // Connects this rank by a unique id, together with all ranks of the group. NCCL waits for them in
  // a thread that is left to itself when the wait is given up.
  static Status FromUniqueId(const Api& api, int rank, int rank_size, const UniqueId& id,
                             const OnGpu& on_gpu, const MayWait& may_wait,
                             std::shared_ptr<CommHandle>* handle);
  static std::shared_ptr<CommHandle> OfCaller(const Api& api, Comm comm);

  // The ncclComm_t of the ranks that pass the same color, in the order of their keys; null for a
  // rank with kNoColor. All ranks call it. If the wait is given up, this one is aborted.
  Status Split(int color, int key, const OnGpu& on_gpu, const MayWait& may_wait,
               std::shared_ptr<CommHandle>* part);

  ~CommHandle();
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;

  Comm comm() const { return comm_; }
  // Whether it was created here.
  bool owned() const { return owned_; }

  // What NCCL has found since, kInProgress among it; an error if the ncclComm_t was aborted.
  Status FindResult(Result* result);
  // Waits until NCCL has taken a call that returned `result`; `name` is the function's. Only a
  // caller's ncclComm_t can be in progress.
  Status Settle(Result result, const char* name, const MayWait& may_wait);

  // Begins to end the calls that are on streams, and to let go of the ncclComm_t, unless it is the
  // caller's. From any thread, also while another one waits inside NCCL, which then returns with an
  // error. Does not wait: as long as a graph exists that has captured a call, NCCL does not return.
  // The result is not valid if nothing had to be done, as in a child of fork().
  std::future<void> BeginAbort();
  // The calls that are on streams have ended: it is destroyed, not aborted.
  void End() { ended_ = true; }

 private:
  CommHandle(const Api& api, Comm comm, bool owned) : api_(api), comm_(comm), owned_(owned) {}
  static Config OurConfig();

  const Api& api_;
  const Comm comm_;
  const bool owned_;
  const uint64_t fork_generation_ = ForkGeneration();
  bool ended_ = false;
  std::mutex asking_;  // NCCL frees what is aborted, so it is not asked meanwhile
  std::atomic<bool> aborted_{false};
};

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

// Each function puts one call on its stream and returns. NCCL reads counts in the call itself, so
// nothing but the tensors is used later.

// ncclAllGather for equal packed blocks; else a group of broadcasts, one per rank with elements,
// which NCCL fuses into one kernel from 2.29.2 on. Then zeros for the gaps.
Status AllGatherV(const Engine& engine, const AllGatherVCall& call);

// Integers that NCCL adds as SPEC wants, in equal packed slices, by ncclReduceScatter. All else:
// each slice goes to its rank by a group of sends and receives, and a kernel of ours reduces there
// in rank order, in as many rounds as the scratch memory needs. Then zeros for the rest of the
// output.
Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call);

// ncclAllReduce where NCCL adds as SPEC wants, else ReduceScatterV and AllGatherV of even parts.
Status AllReduce(const Engine& engine, const AllReduceCall& call);

Status Broadcast(const Engine& engine, const BroadcastCall& call);

// A group of sends and receives, and then zeros for the gaps.
Status ExchangeV(const Engine& engine, const ExchangeVCall& call);

// A group of sends and receives in the order of the list; copies for what goes to this rank itself.
Status Messages(const Engine& engine, const Transfer* list, int count, Stream stream);

Status Barrier(const Engine& engine, Stream stream);

// Where a rank of the group puts the peers' slices until they are reduced: rows of `stride` bytes,
// one per peer. A slice that is longer than a row is reduced in rounds.
struct Staging {
  int64_t row_count = 0;  // elements of a row
  int64_t stride = 0;     // bytes
  int peers = 0;
  int64_t bytes() const { return stride * peers; }
};
// For this rank's slice of `count` elements.
Staging StagingOf(DType dtype, int64_t count, int rank_size);

}  // namespace collops::nccl
