#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/status.h"

namespace collops::shm {

// A window that the wire itself made: its memory lives as long as `keep`.
struct RingWindow {
  uint32_t id = 0;
  std::byte* data = nullptr;
  std::shared_ptr<void> keep;
};

// The windows of this rank and of its peers, as the pair wire uses them; a peer may be this rank
// itself. Nothing here waits. Called by the thread that is in the pair lane.
class PairWindows {
 public:
  PairWindows() = default;
  PairWindows(const PairWindows&) = delete;
  PairWindows& operator=(const PairWindows&) = delete;
  virtual ~PairWindows() = default;

  // Where [data, data + bytes) lies in a window of this rank; false: in none.
  virtual bool Find(const void* data, int64_t bytes, uint32_t* id, int64_t* offset) = 0;
  // Tells the peers of a window of this rank, unless they know. *told false: a mailbox is full, ask
  // again. *mails: how many mails of this rank a peer must have before it can use the window.
  virtual Status Announce(uint32_t id, bool* told, uint64_t* mails) = 0;
  // The address of a range of a peer's window, once `mails` of its mails have come: null before.
  // All numbers are the peer's own; a range outside the window is an error that says so.
  virtual Status Locate(int peer, uint32_t id, int64_t offset, int64_t bytes, uint64_t mails,
                        const std::byte** data) = 0;
  // A new window of this rank.
  virtual Status Make(int64_t bytes, RingWindow* window) = 0;
};

}  // namespace collops::shm
