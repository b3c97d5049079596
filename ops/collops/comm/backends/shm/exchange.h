#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/backends/shm/peer_copy.h"
#include "collops/comm/backends/shm/segment_layout.h"
#include "collops/comm/backends/shm/windows/window_mail.h"
#include "collops/comm/backends/shm/windows/window_table.h"
#include "collops/comm/control/control.h"

namespace collops::shm {

// The bytes of this rank's input that its peers read.
struct Input {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  bool changes = false;  // before End(): peers read a copy
};

// How inputs reach the other ranks in one step. This rank puts its input into its call record, its
// stage or its window, and then publishes the record with its head; a peer's record says where the
// peer's input lies. A rank moves data by its own plan only; numbers that a peer wrote are copied
// once and checked before they are used. One thread at a time. Waits where Step does.
class Exchange {
 public:
  Exchange(control::Control* control, WindowTable* windows);

  // Announces the call and waits until every rank has announced the same. `input` must not change
  // until End(), unless it says so.
  // `stage_first` copies the first chunk of every lane into the stage (StageFirst), if it may.
  template <typename StageFirst>
  Status Begin(const Agreement& agreement, const Input& input, StageFirst&& stage_first) {
    COLLOPS_RETURN_IF_ERROR(step_->Begin(agreement, control_->timeout_s()));
    CallRecord& mine = layout_.call_record(endpoint_->rank(), step_->number());
    COLLOPS_RETURN_IF_ERROR(Place(input, 0, &mine));
    return PublishStaged(input, &mine, stage_first);
  }
  // As Begin(), for a call with different bytes for each peer: `fill` writes short slices into the
  // call record, `input` holds the long ones.
  template <typename Fill, typename StageFirst>
  Status BeginCells(const Agreement& agreement, const Input& input, Fill&& fill,
                    StageFirst&& stage_first) {
    COLLOPS_RETURN_IF_ERROR(step_->Begin(agreement, control_->timeout_s()));
    CallRecord& mine = layout_.call_record(endpoint_->rank(), step_->number());
    COLLOPS_RETURN_IF_ERROR(PlaceLong(input, 0, &mine));
    fill(mine.data);
    return PublishStaged(input, &mine, stage_first);
  }
  // Begin() without the wait, for a call whose body reads the peers' records as they arrive.
  // `tile_window`: this rank's window for tiles, 0: none.
  Status Start(const Agreement& agreement, const Input& input, uint32_t tile_window);
  // Reads the records that have arrived since.
  Status ReadArrived();
  Status AwaitAll();

  // How this rank's own input reaches its peers in this call.
  InputPlace own_place() const { return own_place_; }
  // Whether this rank has staged the first chunk of every lane, and whether a peer's record says
  // so: then there is no signal to wait for.
  bool staged_first() const { return staged_first_; }
  bool HasStagedFirst(int rank) const { return peers_[static_cast<size_t>(rank)].staged_first; }
  // The address of a peer's input of `bytes`; null: it comes through the peer's stage.
  Status PeerInput(int rank, int64_t bytes, const std::byte** data);
  // The data in a peer's call record, and the address of `bytes` from `begin` on in the long input
  // that the peer announced; null: they come through its stage.
  const std::byte* PeerCells(int rank) const {
    return layout_.call_record(rank, step_->number()).data;
  }
  Status PeerPart(int rank, int64_t begin, int64_t bytes, const std::byte** data);
  // The tiles of a peer that has arrived, in the window that it announced.
  Status PeerTiles(int rank, int64_t bytes, const std::byte** data);

  // This rank has finished reading. Waits for the peers only if they read its window in place.
  Status End() { return own_place_ == InputPlace::kWindow ? step_->EndTogether() : step_->End(); }

  int rank() const { return endpoint_->rank(); }
  int size() const { return endpoint_->size(); }
  control::Step& step() { return *step_; }
  WindowMail& mail() { return mail_; }
  // For all that this rank writes for its peers.
  PeerCopy& peer_copy() { return peer_copy_; }
  control::Endpoint& endpoint() const { return *endpoint_; }
  const SegmentLayout& layout() const { return layout_; }

 private:
  struct PeerCall {
    InputPlace place = InputPlace::kCallRecord;
    WindowSpot spot;
    uint32_t tile_window = 0;
    bool staged_first = false;
    // The windows that were found, mapped until the peer's next call whatever its mails say.
    bool keeps = false;
    control::Segment input;
    control::Segment tiles;
  };

  Status Place(const Input& input, uint32_t tile_window, CallRecord* mine);
  // Place() for an input that does not fit into a call record, or is empty.
  Status PlaceLong(const Input& input, uint32_t tile_window, CallRecord* mine);
  // While peers may still read what the previous call staged, nothing is staged here.
  template <typename StageFirst>
  Status PublishStaged(const Input& input, CallRecord* mine, StageFirst&& stage_first) {
    staged_first_ = own_place_ == InputPlace::kStage && step_->PreviousFinished();
    const bool before = staged_first_ && input.bytes <= kMostStagedFirst;
    mine->staged_first = before ? 1 : 0;
    if (before) stage_first();
    step_->Publish();
    if (staged_first_ && !before) stage_first();
    return AwaitAll();
  }
  Status TakeCallRecord(int rank);
  const std::byte* InWindow(int rank, const WindowSpot& spot, int64_t bytes,
                            control::Segment* window);
  Status NotShared(int rank, const std::string& what, const WindowSpot& where) const;

  control::Control* control_;
  control::Endpoint* endpoint_;
  control::Step* step_;
  WindowTable* windows_;
  SegmentLayout layout_;
  WindowMail mail_;
  PeerCopy peer_copy_;
  std::vector<PeerCall> peers_;
  InputPlace own_place_ = InputPlace::kCallRecord;
  bool staged_first_ = false;
};

}  // namespace collops::shm
