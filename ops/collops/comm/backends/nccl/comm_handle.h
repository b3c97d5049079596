#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "collops/comm/backends/nccl/library/api.h"
#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"

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

// What a Split leaves in the subgroup's spec, which outlives the subgroup's Close: the handle goes
// to the subgroup's engine in first contact, or ends at Close.
using PartInSpec = std::shared_ptr<CommHandle>;

}  // namespace collops::nccl
