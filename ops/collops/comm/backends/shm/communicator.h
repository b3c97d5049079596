#pragma once

#include <memory>
#include <utility>

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/backends/shm/fused_call.h"
#include "collops/comm/communicator.h"

namespace collops::shm {

// The ranks of one host: inputs lie in shared memory, where the peers read them. Created without
// waiting; thread-safety and waiting as in Communicator.
class ShmCommunicator : public Communicator {
 public:
  // First contact allocates SegmentLayout::Bytes() for this backend.
  explicit ShmCommunicator(std::shared_ptr<control::Control> control)
      : Communicator(std::move(control)) {}
  ~ShmCommunicator() override;

  const kernels::Compute* compute() const override;
  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  RankSet WindowPeers() const override { return windows_->peers(); }
  bool HasWindows() const override { return windows_->HasCallers(); }

  // An end of the pair wires for a larger group, whose ranks on this host these are; then no
  // messages may be sent over this communicator itself. `doorbell` rings the ranks of that group.
  // Once connected; the wire must not outlive this object.
  std::unique_ptr<PairWire> MakePairWire(const Doorbell& doorbell);

  // For a call of a larger group: a later fused call with a window of so many bytes allocates
  // nothing. Local; once connected, between calls.
  Status ReserveTiles(int64_t bytes) { return fused_->Reserve(bytes); }

 protected:
  void Connected() override;
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body) override;
  PairWire* pair_wire() override { return wire_.get(); }

 private:
  const std::shared_ptr<WindowTable> windows_ = std::make_shared<WindowTable>(RankSet::All(size()));
  // Exist once first contact is complete.
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<ShmFusedCall> fused_;
  std::unique_ptr<SharedWindows> shared_windows_;
  std::unique_ptr<PairWire> wire_;
};

}  // namespace collops::shm
