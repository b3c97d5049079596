#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/fused_call.h"
#include "collops/core/deadline.h"

namespace collops::shm {

// How a matrix goes through a stage: in parts of full rows or, if rows are long, of some columns of
// a few rows. Equal on every rank. A part has a multiple of `row_unit` rows, and its width is a
// whole number of cache lines.
class MatrixCut {
 public:
  static constexpr int64_t kPartBytes = 256 << 10;

  MatrixCut() = default;
  MatrixCut(int64_t rows, int64_t row_bytes, int64_t row_unit)
      : rows_(rows), row_bytes_(row_bytes) {
    const int64_t units = kPartBytes / std::max<int64_t>(row_unit * row_bytes, 1);
    part_rows_ = row_unit * std::max<int64_t>(units, 1);
    part_width_ = units > 0 ? std::max<int64_t>(row_bytes, 1) : kPartBytes / row_unit / 128 * 128;
    across_ = (row_bytes + part_width_ - 1) / part_width_;
  }

  int64_t num_parts() const { return (rows_ + part_rows_ - 1) / part_rows_ * across_; }

  // Part `index` of the matrix, without data and ld_bytes, which the caller sets.
  MatrixPart Part(int64_t index) const {
    MatrixPart part;
    part.row = index / across_ * part_rows_;
    part.rows = std::min(part_rows_, rows_ - part.row);
    part.begin = index % across_ * part_width_;
    part.end = std::min(part.begin + part_width_, row_bytes_);
    return part;
  }

 private:
  int64_t rows_ = 0;
  int64_t row_bytes_ = 0;
  int64_t part_rows_ = 1;
  int64_t part_width_ = 1;
  int64_t across_ = 0;
};

// A fused call on shm. An input in a window is read in place; another one goes through the stage in
// the parts of a MatrixCut. The memory of the call's window is reused from call to call, and grows
// when a call needs more; the backend uses some signals itself. Wait() and End() wait until the
// time-out. Owned by the communicator; one thread.
class ShmFusedCall : public FusedCall {
 public:
  ShmFusedCall(Exchange* exchange, WindowTable* windows)
      : exchange_(exchange), endpoint_(&exchange->endpoint()), windows_(windows) {}

  // Allocates memory for the window; local. `spec` must live until the end of the call.
  Status Prepare(const FusedCallSpec& spec);
  // Between calls: a call with so large a window allocates nothing; local.
  Status Reserve(int64_t tile_bytes);
  // Announces the call.
  Status Begin();
  // Waits until every rank has arrived, and the own input has been read or staged.
  Status End();

  Status Progress() override;
  bool HasAnnounced(int rank) const override { return exchange_->step().HasArrived(rank); }
  const std::vector<int64_t>& ReaderRows(int rank) const override {
    return reader_rows_[static_cast<size_t>(rank)];
  }
  bool NextPart(size_t index, MatrixPart* part) override;
  void ReleasePart(size_t index) override;
  bool AllRead(size_t index) const override;
  std::byte* window() const override;
  Status PeerWindow(int rank, const std::byte** data) const override;
  bool WindowIsFree() const override { return exchange_->step().PreviousFinished(); }
  void Signal(int index, int64_t count) override;
  int64_t Signalled(int rank, int index) const override;
  Status Wait(const std::function<bool()>& ready) override;

 private:
  // The input of one of spec.readers, as this rank reads it.
  struct ReaderInput {
    int rank = 0;
    int64_t rows = 0;
    bool located = false;
    const std::byte* data = nullptr;  // the input in place; null: it comes through the stage
    MatrixCut cut;
    int64_t num_parts = 0;
    int64_t num_read = 0;
  };

  void PrepareSources();
  Status TakeRows(int rank);
  Status Locate(ReaderInput* input);
  // Whether `holds` is true of the number of parts that each reader of this rank's input has read.
  template <typename Holds>
  bool AllReaders(Holds&& holds) const;
  bool CanStage() const;
  void StagePart();
  bool OwnInputTaken() const;

  // Indices of the stage's signals, behind the signals of the body.
  int ProducedIndex() const { return 2 * endpoint_->size(); }
  int ConsumedIndex(int writer) const { return 2 * endpoint_->size() + 1 + writer; }

  Exchange* exchange_;
  control::Endpoint* endpoint_;
  WindowTable* windows_;
  const FusedCallSpec* spec_ = nullptr;
  std::vector<ReaderInput> inputs_;
  std::vector<std::vector<int64_t>> reader_rows_;
  std::vector<bool> rows_known_;
  MatrixCut own_cut_;
  int64_t num_staged_ = 0;
  int64_t num_to_stage_ = 0;
  Deadline next_look_ = Deadline::After(0);
  uint32_t window_id_ = 0;  // that the call announces; 0: it has no window
  std::shared_ptr<Window> memory_;
  bool announced_ = false;              // a call has used memory_
  std::shared_ptr<Window> old_memory_;  // peers may read it until they have begun this call
};

// The ranks of one host: inputs lie in shared memory, where the peers read them. Created without
// waiting; thread-safety and waiting as in Communicator.
class ShmCommunicator : public BackendCommunicator {
 public:
  // First contact allocates SegmentLayout::Bytes() for this backend.
  explicit ShmCommunicator(std::shared_ptr<control::Control> control)
      : BackendCommunicator(std::move(control)) {}
  ~ShmCommunicator() override;

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;
  Status AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) override;
  RankSet WindowPeers() const override { return windows_->peers(); }
  bool HasWindows() const override { return windows_->HasCallers(); }

  // This rank's end of the pair wires for a larger group, whose ranks on this host these are; then
  // no messages may be sent over this communicator itself. `doorbell` rings the ranks of that
  // group. Once connected; the wire must not outlive this object.
  std::unique_ptr<PairWire> MakePairWire(const Doorbell& doorbell);

  // For a call of a larger group: a later fused call with a window of so many bytes allocates
  // nothing. Local; once connected, between calls.
  Status ReserveTiles(int64_t bytes) { return fused_->Reserve(bytes); }

 protected:
  Status CheckShrinks() const override { return Ok(); }
  Status CheckGrows() const override { return Ok(); }
  void Connected() override;
  Status DoAllGatherV(const AllGatherVCall& call) override;
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoRunFused(const FusedCallSpec& spec, const FusedBody& body) override;
  PairWires pair_wires() override { return {wire_.get(), size()}; }

 private:
  const std::shared_ptr<WindowTable> windows_ = std::make_shared<WindowTable>(RankSet::All(size()));
  // Exist once first contact is complete.
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<ShmFusedCall> fused_;
  std::unique_ptr<PairWire> wire_;
};

}  // namespace collops::shm
