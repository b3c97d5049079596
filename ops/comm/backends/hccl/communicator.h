#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backends/hccl/engine.h"
#include "comm/communicator.h"
#include "core/fork_generation.h"

namespace collops::hccl {

// NPUs that reach each other through HCCL. A call is put on the caller's stream and returns. Beside
// it stands the host connection: a communicator of the same ranks in host memory, over which first
// contact is made and ended ranks are noticed, and with COLLOPS_CHECK=1 calls are compared. Where
// the caller brought the HcclComm, it stands only with COLLOPS_CHECK=1. Thread-safety as
// Communicator says; waits in first contact and in comparisons.
class HcclCommunicator : public Communicator {
 public:
  // `host` may be null; then `comm` is the caller's.
  HcclCommunicator(const CommunicatorSpec& spec, const Api& api, Comm comm,
                   std::shared_ptr<Communicator> host, bool compares);
  ~HcclCommunicator() override;

  Device device() const override { return {DeviceKind::kNpu, device_index_}; }
  Status Connect() override;
  Status Supports(CallKind kind, DType dtype, ReduceOp op) const override;
  Status Refuse(CallKind kind, const Status& reason) override;
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  void Abort(const std::string& reason) override;
  void Close(const std::string& reason) override;
  bool failed() const override;

 protected:
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoBarrier() override;

 private:
  // Runs `step` as this rank's only call.
  template <typename Step>
  Status RunAlone(const char* name, Step&& step);
  // Runs `step` on this communicator's NPU, whatever the thread's own is.
  template <typename Step>
  Status RunOnDevice(const char* name, CallKind kind, Step&& step);
  template <typename Call, typename Step>
  Status Enqueue(const Call& call, Step&& step);

  Status CheckUsable() const;
  Status Meet(const char* name);
  Status FindDevice();
  Status ExchangeRootInfo(const char* name, RootInfo* root_info);
  Status Announce(CallKind kind, const Status& reason);
  Status CheckPeers(const char* name);
  Status CheckHost() const;
  Status OfHost(const Status& status);
  Status Fail(const Status& status);
  void End(const Status& status);
  bool Inherited() const { return fork_generation_ != ForkGeneration(); }

  const uint64_t fork_generation_;
  const std::shared_ptr<Communicator> host_;
  const bool compares_;
  Engine engine_;
  std::atomic<int> device_index_{-1};  // -1: not known before first contact
  std::vector<uint64_t> scaled_counts_;
  std::atomic<bool> busy_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // guards what Abort() and Close() from another thread may touch
  Status failure_;
};

}  // namespace collops::hccl
