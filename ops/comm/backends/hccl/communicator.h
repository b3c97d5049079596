#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "comm/backends/hccl/engine.h"
#include "comm/communicator.h"
#include "comm/control/control.h"

namespace collops::hccl {

// NPUs that reach each other through HCCL. A call is put on the caller's stream and returns. First
// contact, the root info, splits and barriers go over Control's board; with COLLOPS_CHECK=1 calls
// are compared there first. Where the caller brought the HcclComm, there is a board only with
// COLLOPS_CHECK=1. Thread-safety as Communicator says; waits in first contact and in comparisons.
class HcclCommunicator : public Communicator {
 public:
  // `comm` is the caller's, or null. Without a board it is the caller's.
  HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api, Comm comm,
                   bool compares);
  ~HcclCommunicator() override;

  Device device() const override { return {DeviceKind::kNpu, device_index_}; }
  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;

 protected:
  Status DoConnect() override;
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoRefuse(const char* name, const Status& reason) override;
  void OnLeave() override;
  void OnClose() override;

 private:
  // Runs `step` on this communicator's NPU, whatever the thread's own is.
  template <typename Step>
  Status RunOnDevice(const char* name, Step&& step);
  template <typename Call, typename Step>
  Status Enqueue(const Call& call, Step&& step);

  Status Meet(const char* name);
  Status FindDevice();
  Status ShareRootInfo(const char* name, RootInfo* root_info);
  Status Decline(const char* name, const Status& reason);
  Status CheckPeers(const char* name);
  void WaitForStreams(double limit_s);

  const bool compares_;
  Engine engine_;
  std::atomic<int> device_index_{-1};  // -1: not known before first contact
  std::recursive_mutex closing_;       // a signal's handler may close what its thread closes
};

}  // namespace collops::hccl
