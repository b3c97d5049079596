#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/backends/hccl/compute/acl_compute.h"
#include "comm/backends/hccl/engine.h"
#include "comm/communicator.h"
#include "comm/control/control.h"

namespace collops::hccl {

// NPUs connected by HCCL, on one host or many. A call is put on the caller's stream and returns.
// First contact, the root info, splits and barriers use Control's board; with COLLOPS_CHECK=1 calls
// are compared there first. With an HcclComm of the caller's there is a board only with
// COLLOPS_CHECK=1. Thread-safety as in Communicator; waits in first contact and in comparisons.
class HcclCommunicator : public Communicator {
 public:
  // `comm`: the caller's HcclComm, or null; a Control without a board always comes with one, or
  // with a part that was split off it.
  HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api, Comm comm,
                   bool compares);
  ~HcclCommunicator() override;

  Device device() const override { return {DeviceKind::kNpu, device_index_}; }
  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  bool HasMessagesOnStreams() const override { return true; }
  kernels::StreamCompute* stream_compute() override { return &compute_; }
  Status KeepOnStream(void* stream, KeepAlive kept) override;

 protected:
  bool ConnectsInEngine() const override { return true; }
  Status DoConnect() override;
  Status DoAgree(const Agreement& agreement) override;
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoBroadcast(const BroadcastCall& call) override;
  Status DoMessages(const char* name, Transfer* list, int count, void* stream) override;
  Status DoBarrier(const Agreement& agreement, void* stream) override;
  Status DoRefuse(const char* name, const Status& reason) override;
  Status DoSplit(const std::vector<int>& members, int index, const std::string& name,
                 std::shared_ptr<void>* part) override;
  void OnLeave() override;
  void OnClose() override;

 private:
  // Runs `step` with this communicator's NPU as the thread's current device.
  template <typename Step>
  Status RunOnDevice(const char* name, Step&& step);
  // Puts a call on its stream. `agreement`: what is compared first with COLLOPS_CHECK=1; null:
  // nothing.
  template <typename Step>
  Status Enqueue(const char* name, const Agreement* agreement, void* stream, KeepAlive keep,
                 Step&& step);
  // `is_empty`: no rank has an element, which every rank knows.
  template <typename Call, typename Step>
  Status Enqueue(const Call& call, bool is_empty, Step&& step);

  Status MeetOnce(const char* name);
  Status FindDevice();
  Status Decline(const char* name, const Status& reason);
  Status CheckPeers(const char* name, bool is_step);
  void WaitForStreams(double limit_s);

  const bool compares_;
  Engine engine_;
  std::shared_ptr<CommHandle> caller_comm_;  // null: connected in first contact
  std::atomic<int> device_index_{-1};        // -1: not known before first contact
  AclCompute compute_;
  std::recursive_mutex closing_;  // recursive: a signal handler of the thread may close, too
};

}  // namespace collops::hccl
