#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/backends/shm/layout.h"
#include "comm/backends/shm/windows/window_mail.h"
#include "comm/backends/shm/windows/window_table.h"
#include "comm/control/control.h"

namespace collops::shm {

// The bytes of this rank's input that its peers read.
struct Input {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// How inputs reach the other ranks in one step: this rank's is placed in its record, its stage or
// its window before the head that rides in the record is published; of the others it learns where
// theirs lie. A rank moves data by its own plan only; of what a peer wrote, numbers are copied once
// and checked before they are used. One thread at a time. Waits where Step does.
class Exchange {
 public:
  Exchange(control::Control* control, WindowTable* windows);

  // Announces the call and waits until every rank has announced the same. `input` stays unchanged
  // until End().
  Status Begin(const Agreement& agreement, const Input& input);
  // The same for a call with a part of its own for each peer: `fill` writes short ones into the
  // record, `input` holds the others.
  template <typename Fill>
  Status BeginCells(const Agreement& agreement, const Input& input, Fill&& fill) {
    RETURN_IF_ERROR(step_->Begin(agreement, control_->timeout_s()));
    Record& mine = layout_.record(endpoint_->rank(), step_->number());
    RETURN_IF_ERROR(PlaceLong(input, 0, &mine));
    fill(mine.data);
    step_->Publish();
    return HearAll();
  }
  // Begin() without the wait, for a call whose body hears the others by and by. `tile_window` is
  // this rank's memory for tiles, 0: none.
  Status Start(const Agreement& agreement, const Input& input, uint32_t tile_window);
  // Hears those that have announced the call since.
  Status HearArrived();
  Status HearAll();

  // How this rank's own input reaches its peers in this call.
  Source own_source() const { return own_source_; }
  // Where the `bytes` of a peer's input lie; null: they come through its stage.
  Status PeerInput(int rank, int64_t bytes, const std::byte** data) const;
  // What a peer's record holds for its readers, and where `bytes` from `begin` on lie in the long
  // input that it announced; null: they come through its stage.
  const std::byte* PeerCells(int rank) const { return layout_.record(rank, step_->number()).data; }
  Status PeerPart(int rank, int64_t begin, int64_t bytes, const std::byte** data) const;
  // The tiles that a heard peer announced, in its window for them.
  Status PeerTiles(int rank, int64_t bytes, const std::byte** data) const;

  // This rank has read all it needs. Waits for the peers only if they read its window in place.
  Status End() { return own_source_ == Source::kWindow ? step_->EndTogether() : step_->End(); }

  int rank() const { return endpoint_->rank(); }
  int size() const { return endpoint_->size(); }
  control::Step& step() { return *step_; }
  WindowMail& mail() { return mail_; }
  control::Endpoint& endpoint() const { return *endpoint_; }
  const Layout& layout() const { return layout_; }

 private:
  struct PeerCall {
    Source source = Source::kRecord;
    WindowSpot spot;
    uint32_t tile_window = 0;
  };

  Status Place(const Input& input, uint32_t tile_window, Record* mine);
  // The same of an input that does not fit into a record; an empty one is nowhere.
  Status PlaceLong(const Input& input, uint32_t tile_window, Record* mine);
  Status TakeRecord(int rank);
  Status NotShared(int rank, const std::string& what, const WindowSpot& where) const;

  control::Control* control_;
  control::Endpoint* endpoint_;
  control::Step* step_;
  WindowTable* windows_;
  Layout layout_;
  WindowMail mail_;
  std::vector<PeerCall> peers_;
  Source own_source_ = Source::kRecord;
};

}  // namespace collops::shm
