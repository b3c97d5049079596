#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/backends/shm/matrix_cut.h"
#include "collops/comm/backends/shm/windows/call_window.h"
#include "collops/comm/fused_call.h"
#include "collops/core/deadline.h"

namespace collops::shm {

// A fused call on shm. An input in a window is read in place; another one goes through the stage in
// the parts of a MatrixCut. Wait() and End() wait until the time-out. Owned by the communicator;
// one thread.
class ShmFusedCall : public FusedCall {
 public:
  ShmFusedCall(Exchange* exchange, WindowTable* windows)
      : exchange_(exchange), endpoint_(&exchange->endpoint()), window_(exchange, windows) {}

  // Allocates memory for the window; local. `spec` must live until the end of the call.
  Status Prepare(const FusedCallSpec& spec);
  // Between calls: a call with so large a window allocates nothing; local.
  Status Reserve(int64_t tile_bytes) { return window_.Reserve(tile_bytes); }
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
  CallWindow* window() override { return &window_; }
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
  bool CanStage() const;
  void StagePart();
  bool OwnInputTaken() const;

  // Indices of the stage's signals, behind the signals of the body.
  int ProducedIndex() const { return 2 * endpoint_->size(); }
  int ConsumedIndex(int writer) const { return 2 * endpoint_->size() + 1 + writer; }

  Exchange* exchange_;
  control::Endpoint* endpoint_;
  ShmCallWindow window_;
  const FusedCallSpec* spec_ = nullptr;
  std::vector<ReaderInput> inputs_;
  std::vector<std::vector<int64_t>> reader_rows_;
  std::vector<bool> rows_known_;
  MatrixCut own_cut_;
  int64_t num_staged_ = 0;
  int64_t num_to_stage_ = 0;
  Deadline next_look_ = Deadline::After(0);
};

}  // namespace collops::shm
