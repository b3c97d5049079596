#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/core/status.h"

namespace [[gnu::visibility("default")]] collops {

// Memory that the ranks share during one call, as the host sees it: each rank writes its own part,
// and peers read it in place after a signal. Its size is announced with the call and equal on every
// rank. Owned by the communicator, valid during the call; one thread; waits for no one.
class CallWindow {
 public:
  CallWindow() = default;
  CallWindow(const CallWindow&) = delete;
  CallWindow& operator=(const CallWindow&) = delete;
  virtual ~CallWindow() = default;

  // This rank's memory; null if the call has none.
  virtual std::byte* data() const = 0;
  // The memory of a peer that has announced the call; null if the call has none. An error unless
  // the window that the peer named is mapped and has this rank's size.
  virtual Status PeerData(int rank, const std::byte** data) const = 0;
  // Whether all peers have read what this rank wrote and signalled in the previous call.
  virtual bool IsFree() const = 0;

  // Signals [0, 2 * rank_size) of this rank: counts that start at 0 and only grow during a call.
  // They contain the call's number, so they are not reset: a call's first signal, allowed once
  // IsFree(), replaces the last one of the previous call. A rank that has seen a signal's count
  // also sees what was written before that signal.
  virtual void Signal(int index, int64_t count) = 0;
  virtual int64_t Signalled(int rank, int index) const = 0;
};

}  // namespace collops
