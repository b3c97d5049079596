#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/backends/shm/disagreement.h"
#include "comm/backends/shm/endpoint.h"
#include "comm/backends/shm/waiter.h"
#include "comm/backends/shm/window_mail.h"
#include "comm/backends/shm/window_table.h"
#include "comm/call.h"

namespace collops::shm {

// The bytes of this rank's input that its peers read.
struct Input {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// The calls of one rank, one after the other: each is announced to all, heard from all, compared,
// run, and ended. A rank moves data by its own plan only; of what a peer wrote, numbers are copied
// once and checked before they are used. One thread at a time. Waits until the time-out.
class Exchange {
 public:
  Exchange(Endpoint* endpoint, WindowTable* windows, WindowMail* mail)
      : endpoint_(endpoint),
        windows_(windows),
        mail_(mail),
        peers_(static_cast<size_t>(endpoint->size())) {}

  // Announces the call and waits until every rank has announced the same. `input` stays unchanged
  // until End(). After an error with refused() no data has moved and the next call may follow.
  Status Begin(const CallInfo& info, const Input& input, double timeout_s);
  bool refused() const { return refused_; }

  // Begin() without the wait, for a call whose body hears the others by and by: `info` and `input`
  // stay until End(). `tile_window` is this rank's memory for tiles, 0: none.
  Status Start(const CallInfo& info, const Input& input, uint32_t tile_window, double timeout_s);
  // Hears and compares those that have announced the call since.
  Status HearArrived();
  Status HearAll();
  // Before a disagreement ends the group: whoever comes late may refuse, and a refusal goes first,
  // for it leaves the group good. One that never comes changes nothing.
  Status HearRest();
  bool heard(int rank) const {
    return std::find(unheard_.begin(), unheard_.end(), rank) == unheard_.end();
  }

  // How this rank's own input reaches its peers in this call.
  Source own_source() const { return own_source_; }
  // Where the `bytes` of a peer's input lie; null: they come through its stage.
  Status PeerInput(int rank, int64_t bytes, const std::byte** data) const;

  void RestartDeadline() { waiter_->RestartDeadline(); }

  // The tiles that a heard peer announced, in its window for them.
  Status PeerTiles(int rank, int64_t bytes, const std::byte** data) const;

  template <typename Ready>
  Status Until(Ready&& ready) {
    return waiter_->Until(ready);
  }

  uint64_t sequence() const { return sequence_; }
  // Whether every rank is done with the call before this one.
  bool PreviousCallFinished() const;

  // This rank has read all it needs. Waits for the peers only if they read its window in place.
  Status End();
  // The same without that wait, for who knows that they have.
  Status Leave();

  // Takes part in the next call with a refusal, without waiting for the others.
  Status Refuse(CallKind kind, const Status& reason, double timeout_s);

  Endpoint& endpoint() { return *endpoint_; }

 private:
  struct PeerCall {
    Source source = Source::kSlot;
    WindowSpot spot;
    uint32_t tile_window = 0;
  };

  void Enter(CallKind kind, double timeout_s);
  Status CatchUp(double timeout_s);
  Status Place(const Input& input, uint32_t tile_window, Announcement* mine);
  void Announce(Announcement* mine);
  bool HasAnnounced(int rank) const;
  Status Hear(int rank);
  void Finish();

  Endpoint* endpoint_;
  WindowTable* windows_;
  WindowMail* mail_;
  std::vector<PeerCall> peers_;
  std::vector<int> unheard_;
  std::optional<Waiter> waiter_;
  const CallInfo* info_ = nullptr;  // of the call that runs, and its signature
  uint64_t signature_ = 0;
  uint64_t sequence_ = 0;
  Source own_source_ = Source::kSlot;
  bool refused_ = false;
  bool behind_ = false;  // the last call was refused before all its announcements were heard
};

}  // namespace collops::shm
