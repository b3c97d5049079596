#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/backends/hccl/compute/acl_compute.h"
#include "collops/comm/backends/hccl/engine.h"
#include "collops/comm/streams/stream_communicator.h"

namespace collops::hccl {

// NPUs connected by HCCL, on one host or many; the rest is StreamCommunicator's. With an HcclComm
// of the caller's there is a board only with COLLOPS_CHECK=1.
class HcclCommunicator : public StreamCommunicator {
 public:
  // `comm`: the caller's HcclComm, or null; a Control without a board always comes with one, or
  // with a part that was split off it.
  HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api, Comm comm,
                   bool compares);
  ~HcclCommunicator() override;

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  kernels::StreamCompute* stream_compute() override;

 protected:
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoBroadcast(const BroadcastCall& call) override;
  Status DoMessages(const CallName& name, Transfer* list, int count, void* stream) override;
  Status DoBarrier(const Agreement& agreement, void* stream) override;
  Status DoSplit(const std::vector<int>& members, int index, const std::string& name,
                 std::shared_ptr<void>* part) override;
  void OnReleased(bool past) override;

 private:
  HcclCommunicator(std::shared_ptr<control::Control> control, std::unique_ptr<Engine> engine,
                   bool compares);

  Engine& engine_;  // owned by StreamCommunicator
  AclCompute compute_;
};

}  // namespace collops::hccl
