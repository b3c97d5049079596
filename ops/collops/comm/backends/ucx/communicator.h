#pragma once

#include <memory>
#include <mutex>

#include "collops/comm/backends/ucx/collectives.h"
#include "collops/comm/backends/ucx/pair_wire.h"
#include "collops/comm/communicator.h"

namespace collops::ucx {

// CPU ranks on several hosts: UCX between hosts, shared memory inside each. Control compares every
// call over the connections of the hosts. Thread-safety and waiting as in Communicator.
class UcxCommunicator : public Communicator {
 public:
  explicit UcxCommunicator(std::shared_ptr<control::Control> control)
      : Communicator(std::move(control)) {}
  ~UcxCommunicator() override;

  const kernels::Compute* compute() const override;
  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  // Memory of this rank alone: it is an ordinary tensor in every call, and saves no copy.
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  RankSet WindowPeers() const override;

 protected:
  Status ConnectAll() override;
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  PairWire* pair_wire() override { return pair_wire_.get(); }
  void OnLeave() override;
  void OnClose() override;

 private:
  // One step: the ranks agree, then the data moves.
  Status RunStep(const Agreement& agreement, std::unique_ptr<CrossHostCall> call);

  // Set once first contact is complete.
  std::unique_ptr<Link> link_;
  std::unique_ptr<UcxPairWire> pair_wire_;
  Scratch scratch_;               // of ReduceScatterV
  std::recursive_mutex closing_;  // recursive: a signal handler of the thread may close, too
};

}  // namespace collops::ucx
