#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "comm/backends/hccl/engine.h"
#include "comm/communicator.h"
#include "comm/control/control.h"

namespace collops::hccl {

// NPUs connected by HCCL. A call is put on the caller's stream and returns. First contact, the root
// info, splits and barriers use Control's board; with COLLOPS_CHECK=1 calls are compared there
// first. With an HcclComm of the caller's there is a board only with COLLOPS_CHECK=1. Thread-safety
// as in Communicator; waits in first contact and in comparisons.
class HcclCommunicator : public Communicator {
 public:
  // `comm`: the caller's HcclComm, or null; a Control without a board always comes with one.
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
  // Runs `step` with this communicator's NPU as the thread's current device.
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
  std::recursive_mutex closing_;       // recursive: a signal handler of the thread may close, too
};

}  // namespace collops::hccl
