#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/backends/nccl/engine.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/kernels/cuda/compute.h"

namespace collops::nccl {

// GPUs connected by NCCL, on one host or many; the rest is StreamCommunicator's. NCCL moves; what
// SPEC wants in rank order is reduced by a kernel of ours, so the bits are those of the CPU. With
// an ncclComm_t of the caller's there is a board only with COLLOPS_CHECK=1.
class NcclCommunicator : public StreamCommunicator {
 public:
  // `comm`: the caller's ncclComm_t, or null.
  NcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                   const cuda::DriverApi& driver, Comm comm, bool compares);
  ~NcclCommunicator() override;

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  int64_t ScratchBytes(DType dtype, ReduceOp op, int64_t own_count, int num_ranks) const override;
  kernels::StreamCompute* stream_compute() override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;

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
  NcclCommunicator(std::shared_ptr<control::Control> control, std::unique_ptr<Engine> engine,
                   bool compares);

  Engine& engine_;  // owned by StreamCommunicator
  cuda::CudaCompute compute_;
};

}  // namespace collops::nccl
