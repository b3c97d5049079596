#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/backends/shm/group.h"
#include "comm/backends/shm/layout.h"
#include "core/status.h"

namespace collops::shm {

// Of a failure: later than every call.
constexpr uint64_t kAnyCall = UINT64_MAX;

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

  // Ends the group for everybody from call `sequence` on; of two failures the one in the earlier
  // call counts, of one call the first. A rank that is still in a call before has all it needs.
  void PublishFailure(const Status& status, uint64_t sequence);
  // Ok, or the failure that ended the group in that call or before, with the rank that reported it.
  Status GroupFailure(uint64_t sequence = kAnyCall) const;
  bool GroupFailed(uint64_t sequence) const {
    const uint32_t failed = layout_.group().failed_rank.load(std::memory_order_acquire);
    return failed != 0 && FailedCall(failed) <= sequence;
  }

  // Tells the others, once they wait for this rank again, that it is gone and why.
  void PublishLeft(const std::string& reason);

  // ERROR_PEER_LOST when a rank that has not finished the call has left or ended.
  Status FindLoss(uint64_t sequence) const;
  // The same of some ranks in whatever call; of one whose process has ended, or also of one that
  // has left.
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) const;

  // Which ranks hold up the call, and what they are doing: for the message of a time-out.
  std::string DescribeLate(uint64_t sequence) const;

 private:
  void WakeUp(int peer);
  void SleepOn(uint32_t bell);
  bool HasEnded(int rank) const;
  bool HasLeft(int rank) const;
  Status Lost(int rank) const;
  // `failed`: what GroupState::failed_rank says, not 0. A peer's number is not trusted.
  int Reporter(uint32_t failed) const {
    return static_cast<int>((failed - 1) % static_cast<uint32_t>(size_));
  }
  uint64_t FailedCall(uint32_t failed) const {
    return layout_.rank(Reporter(failed)).failed_call.load(std::memory_order_relaxed);
  }
  std::string DescribeUnfinished(uint64_t sequence, bool begun) const;

  Group group_;
  Layout layout_;
  int rank_;
  int size_;
};

}  // namespace collops::shm
