#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collops/comm/backends/nccl/library.h"
#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/devices.h"
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
  // The calls that are on streams have ended, and no rank is lost: it is destroyed, not aborted.
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

// GPUs connected by NCCL, on one host or many; the rest is StreamCommunicator's. NCCL moves; what
// SPEC wants in rank order is reduced by a kernel of ours, so the bits are those of the CPU. With
// an ncclComm_t of the caller's there is a board only with COLLOPS_CHECK=1. NCCL reads counts in
// the call itself, so nothing but the tensors is used later.
class NcclCommunicator final : public StreamCommunicator {
 public:
  // `caller_comm`: the caller's ncclComm_t; null: connected in first contact.
  NcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                   const cuda::DriverApi& driver, Comm caller_comm, bool compares);
  ~NcclCommunicator() override { Finish(); }

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  int64_t ScratchBytes(DType dtype, ReduceOp op, int64_t own_count, int num_ranks) const override;

  // What the calls use.
  const Api& api() const { return api_; }
  const cuda::DriverApi& driver() const { return driver_; }
  const cuda::Kernels& kernels() const { return kernels_; }
  Comm nccl() const { return handle_->comm(); }
  // Turns the result of a call of NCCL into a Status, once NCCL has taken the call on the host: a
  // caller's ncclComm_t may need a wait for that, at most the time-out.
  Status Taken(Result result, const char* call) const;

 protected:
  // ncclAllGather for equal packed blocks; else a group of broadcasts, one per rank with elements,
  // which NCCL fuses into one kernel from 2.29.2 on. Then zeros for the gaps.
  Status DoAllGatherV(const AllGatherVCall& call) override;
  // Integers that NCCL adds as SPEC wants, in equal packed slices, by ncclReduceScatter. All else:
  // each slice goes to its rank by a group of sends and receives, and a kernel of ours reduces
  // there in rank order, in as many rounds as the scratch memory needs. Then zeros for the rest of
  // the output.
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  // A group of sends and receives, and then zeros for the gaps.
  Status DoExchangeV(const ExchangeVCall& call) override;
  // ncclAllReduce where NCCL adds as SPEC wants, else ReduceScatterV and AllGatherV of even parts.
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoBroadcast(const BroadcastCall& call) override;
  // A group of sends and receives in the order of the list; copies for what goes to this rank
  // itself.
  Status DoMessages(const CallName& name, Transfer* list, int count, void* stream) override;
  Status DoBarrier(const Agreement& agreement, void* stream) override;
  Status DoSplit(const std::vector<int>& members, int index, const std::string& name,
                 std::shared_ptr<void>* part) override;

  bool connected() const override { return is_connected_; }
  Status FindDevice(int* device) const override;
  void AllowCaptures() const override { cuda::AllowCaptures(driver_); }
  Status OnDevice(int device, const std::function<void()>& step) const override {
    return cuda::OnDevice(driver_, device, step);
  }
  Status Meet() override;
  Status AsyncError() override;
  bool EndsByAbort() const override { return true; }
  bool IsHandedIn() const override { return caller_comm_ != nullptr; }
  void AbortCalls() override;
  double Patience() const override;
  void LetGo(bool past) override;

 private:
  // For a wait that begins now: goes on until the time-out, a lost rank, or Ctrl-C.
  MayWait UntilTimeout() const;
  OnGpu InThread() const;
  Status ShareUniqueId(UniqueId* id);
  Status Connect(std::shared_ptr<CommHandle> handle);

  const Api& api_;
  const cuda::DriverApi& driver_;
  NotedRuntime runtime_;
  cuda::Kernels kernels_;
  std::shared_ptr<CommHandle> caller_comm_;
  std::mutex letting_go_;  // AbortCalls() may run meanwhile
  std::shared_ptr<CommHandle> handle_;
  std::atomic<bool> is_connected_{false};
  std::shared_ptr<cuda::Block> stand_in_;  // whose contents mean nothing: what a barrier sums
};

}  // namespace collops::nccl
