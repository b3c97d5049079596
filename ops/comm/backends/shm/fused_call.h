#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/backends/shm/exchange.h"
#include "comm/backends/shm/matrix_cut.h"
#include "comm/fused_call.h"
#include "core/deadline.h"

namespace collops::shm {

// A fused call on shm. An input in a window is read in place; another one goes through the stage in
// the parts of a MatrixCut. Keeps the memory for tiles from call to call. Waits in Wait() and End()
// until the time-out; owned by the communicator, one thread.
class ShmFusedCall : public FusedCall {
 public:
  ShmFusedCall(Exchange* exchange, WindowTable* windows)
      : exchange_(exchange), endpoint_(&exchange->endpoint()), windows_(windows) {}

  // Finds memory for the tiles: local. The spec stays until the end of the call.
  Status Prepare(const FusedCallSpec& spec);
  // Announces the call.
  Status Begin();
  // Waits until every rank has been heard and the readers have, or have been handed, the own input.
  Status End();

  Status Progress() override;
  bool Heard(int rank) const override { return exchange_->step().Heard(rank); }
  const std::vector<int64_t>& ReaderRows(int rank) const override {
    return reader_rows_[static_cast<size_t>(rank)];
  }
  bool NextPart(size_t index, MatrixPart* part) override;
  void ReleasePart(size_t index) override;
  bool AllRead(size_t index) const override;
  bool TilesFree() const override { return exchange_->step().PreviousFinished(); }
  std::byte* tiles() const override;
  Status PeerTiles(int rank, const std::byte** tiles) const override;
  void Signal(int index, int64_t count) override;
  int64_t Signalled(int rank, int index) const override;
  Status Wait(const std::function<bool()>& ready) override;

 private:
  // The input of one reader, as this rank reads it.
  struct Source {
    int rank = 0;
    int64_t rows = 0;
    bool located = false;
    const std::byte* data = nullptr;  // in place; null: part by part from the stage
    MatrixCut cut;
    int64_t num_parts = 0;
    int64_t num_read = 0;
  };

  Status PrepareTiles(int64_t bytes, uint32_t* window);
  void PrepareSources();
  Status TakeRows(int rank);
  Status Locate(Source* source);
  bool CanStage() const;
  void StagePart();
  bool OwnInputTaken() const;

  int ProducedIndex() const { return 2 * endpoint_->size(); }
  int ConsumedIndex(int writer) const { return 2 * endpoint_->size() + 1 + writer; }

  Exchange* exchange_;
  control::Endpoint* endpoint_;
  WindowTable* windows_;
  const FusedCallSpec* spec_ = nullptr;
  uint32_t tile_window_ = 0;
  std::shared_ptr<Window> tiles_;
  std::shared_ptr<Window> old_tiles_;  // peers may read them until they have begun this call
  std::vector<Source> sources_;
  std::vector<std::vector<int64_t>> reader_rows_;
  std::vector<bool> rows_known_;
  MatrixCut own_cut_;
  int64_t num_staged_ = 0;
  int64_t num_to_stage_ = 0;
  Deadline next_look_ = Deadline::After(0);
};

}  // namespace collops::shm
