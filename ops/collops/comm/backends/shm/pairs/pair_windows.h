#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collops/core/status.h"

namespace collops::shm {

// A window that the wire has allocated; it lives as long as `keep`.
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

  // The place of [data, data + bytes) in a window of this rank; false if it lies in none.
  virtual bool Find(const void* data, int64_t bytes, uint32_t* id, int64_t* offset) = 0;
  // Sends a window of this rank to the peers, unless they have it. *told false: a mailbox is full,
  // call again. *mails: how many mails of this rank a peer must have read to use the window.
  virtual Status Announce(uint32_t id, bool* told, uint64_t* mails) = 0;
  // The address of a range of a peer's window; null until `mails` of the peer's mails have arrived.
  // All numbers come from the peer; a range outside the window is an error.
  virtual Status Locate(int peer, uint32_t id, int64_t offset, int64_t bytes, uint64_t mails,
                        const std::byte** data) = 0;
  // Allocates a window of this rank.
  virtual Status Make(int64_t bytes, RingWindow* window) = 0;
};

}  // namespace collops::shm
