#pragma once

#include <memory>
#include <vector>

#include "collops/comm/backends/cuda/engine.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/kernels/cuda/compute.h"

namespace collops::cuda_peers {

// GPUs of one host that address each other's memory: a call is one kernel on each, or three, which
// wait for the kernels of the peers. Ranks are threads or processes, and may share a GPU. The
// kernels compare the calls, so a disagreement is reported by the next call; the rest is
// StreamCommunicator's.
class CudaCommunicator : public StreamCommunicator {
 public:
  CudaCommunicator(std::shared_ptr<control::Control> control, const cuda::DriverApi& driver,
                   bool compares);
  ~CudaCommunicator() override;

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  kernels::StreamCompute* stream_compute() override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;

 protected:
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoBarrier(const Agreement& agreement, void* stream) override;
  void OnReleased(bool past) override;

 private:
  CudaCommunicator(std::shared_ptr<control::Control> control, std::unique_ptr<Engine> engine,
                   bool compares);

  Engine& engine_;  // owned by StreamCommunicator
  cuda::CudaCompute compute_;
};

}  // namespace collops::cuda_peers
