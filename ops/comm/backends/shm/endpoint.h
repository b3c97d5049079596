#pragma once

#include <string>

#include "comm/backends/shm/group.h"
#include "comm/backends/shm/layout.h"
#include "core/status.h"

namespace collops::shm {

// One rank's end of the common segment: what it tells the others and what it sees of them.
// Owned by the communicator; one thread at a time, but for PublishFailure. Waits for no one.
class Endpoint {
 public:
  Endpoint(Group group, int rank, int rank_size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Layout& layout() const { return layout_; }
  Group& group() { return group_; }
  pid_t pid(int rank) const { return group_.peers[static_cast<size_t>(rank)].pid; }

  // Wakes a peer that sleeps. A peer that falls asleep at this very moment may be missed; it looks
  // again by itself after a nap of at most kNapMs, which saves a fence in every signal.
  void Ring(int peer) {
    if (layout_.rank(peer).asleep.load(std::memory_order_relaxed) != 0) WakeUp(peer);
  }
  void RingAll();

  // Sleeps until rung, unless `ready` holds already.
  template <typename Ready>
  void Nap(Ready&& ready) {
    RankState& self = layout_.rank(rank_);
    self.asleep.store(1, std::memory_order_seq_cst);
    const uint32_t bell = self.doorbell.load(std::memory_order_seq_cst);
    if (!ready()) SleepOn(bell);
    self.asleep.store(0, std::memory_order_relaxed);
  }

  // Ends the group for everybody; the first failure is the one that counts.
  void PublishFailure(const Status& status);
  // Ok, or the failure that ended the group, with the rank that reported it.
  Status GroupFailure() const;
  bool GroupFailed() const {
    return layout_.group().failed_rank.load(std::memory_order_acquire) != 0;
  }

  // Tells the others, once they wait for this rank again, that it is gone and why.
  void PublishLeft(const std::string& reason);

  // ERROR_PEER_LOST when a rank that has not finished the call has left or ended.
  Status FindLoss(uint64_t sequence) const;

  // Which ranks hold up the call, and what they are doing: for the message of a time-out.
  std::string DescribeLate(uint64_t sequence) const;

 private:
  void WakeUp(int peer);
  void SleepOn(uint32_t bell);
  bool HasLeft(int rank) const;
  std::string DescribeUnfinished(uint64_t sequence, bool begun) const;

  Group group_;
  Layout layout_;
  int rank_;
  int size_;
};

}  // namespace collops::shm
