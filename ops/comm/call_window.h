#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace collops {

// Memory that the ranks share during one call, seen from the host: each rank writes its own, peers
// read it in place once a signal of its says so. Its length is the call's word, the same on every
// rank. Belongs to the communicator, valid during the call; one thread; waits for no one.
class CallWindow {
 public:
  CallWindow() = default;
  CallWindow(const CallWindow&) = delete;
  CallWindow& operator=(const CallWindow&) = delete;
  virtual ~CallWindow() = default;

  // This rank's own; null where the call has none.
  virtual std::byte* data() const = 0;
  // Of a peer that was heard; null where the call has none. The window that the peer named must be
  // mapped and as long as the own: an error if it is not.
  virtual Status PeerData(int rank, const std::byte** data) const = 0;
  // Whether nobody reads any more what this rank wrote and signalled in the call before.
  virtual bool IsFree() const = 0;

  // Signals [0, 2 * rank_size) of this rank: counts that only grow during a call and start at 0.
  // They carry the call's number, so nothing is reset: the first one of a call, once IsFree(),
  // takes the place of the last one of the call before. What was written before a signal is visible
  // to whoever has seen its count.
  virtual void Signal(int index, int64_t count) = 0;
  virtual int64_t Signalled(int rank, int index) const = 0;
};

}  // namespace collops
