#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/control/board.h"
#include "comm/control/bootstrap/group.h"
#include "core/status.h"

namespace collops::control {

// Of a failure: later than every step.
constexpr uint64_t kAnyStep = UINT64_MAX;

// By the clock that all processes of a host share.
int64_t MonotonicMs();
// Wakes the watcher of this host (Group::bell).
void RingBell(int bell);

// One rank's end of the board: what it tells the others and what it sees of them. Owned by Control;
// one thread at a time, but for PublishFailure and PublishLeft. Waits for no one.
class Endpoint {
 public:
  Endpoint(Group group, int rank, int rank_size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Board& board() const { return board_; }
  Group& group() { return group_; }
  pid_t pid(int rank) const { return group_.peers[static_cast<size_t>(rank)].pid; }
  // "rank 2 (pid 77)"
  std::string Who(int rank) const { return Concat("rank ", rank, " (pid ", pid(rank), ")"); }

  // Where a step's heads lie: on the board, unless a backend has them in its own first signals.
  void PlaceHeads(const HeadPlaces& places) { heads_ = places; }
  SignalHead& head(int rank, uint64_t step) const { return heads_.At(rank, step); }
  // Whether `rank` has begun the step.
  bool HasBegun(int rank, uint64_t step) const {
    return NumberOf(head(rank, step).step.load(std::memory_order_acquire)) >= step;
  }

  // Wakes a peer that sleeps. A peer that falls asleep at this very moment may be missed; it looks
  // again by itself after a nap of at most kNapMs, which saves a fence in every signal.
  void Ring(int peer, Lane lane = kGroupLane) {
    const uint32_t asleep = board_.member(peer).asleep[lane].load(std::memory_order_relaxed);
    if (asleep != kAwake) WakeUp(peer, asleep == kInGroupLane ? kGroupLane : lane);
  }
  void RingAll();
  // After news that end the waits of every lane.
  void RingEveryLane();

  // Sleeps until rung, unless `ready` holds already. `both`, of the group lane: rings of the pair
  // lane wake it, too, unless another thread sleeps there. One thread a lane.
  template <typename Ready>
  void Nap(Lane lane, Ready&& ready, bool both = false) {
    Member& self = board_.member(rank_);
    uint32_t awake = kAwake;
    if (both) self.asleep[kPairLane].compare_exchange_strong(awake, kInGroupLane);
    self.asleep[lane].store(kInItsLane, std::memory_order_seq_cst);
    const uint32_t bell = self.doorbell[lane].load(std::memory_order_seq_cst);
    if (!ready()) SleepOn(lane, bell);
    self.asleep[lane].store(kAwake, std::memory_order_relaxed);
    uint32_t here = kInGroupLane;
    if (both) self.asleep[kPairLane].compare_exchange_strong(here, kAwake);
  }

  // Ends the group for everybody from `step` on; of two failures the one in the earlier step
  // counts, of one step the first. A rank that is still in a step before has all it needs.
  void PublishFailure(const Status& status, uint64_t step);
  // Ok, or the failure that ended the group in that step or before, with the rank that reported it.
  Status GroupFailure(uint64_t step = kAnyStep) const;
  bool GroupFailed(uint64_t step) const {
    const uint32_t failed = board_.group().failed_rank.load(std::memory_order_acquire);
    return failed != 0 && FailedStep(failed) <= step;
  }

  // Tells the others, once they wait for this rank again, that it is gone and why.
  void PublishLeft(const std::string& reason);

  // This rank is through with the step.
  void Finish(uint64_t step);
  bool HasFinished(int rank, uint64_t step) const {
    return board_.member(rank).finished.load(std::memory_order_acquire) >= step;
  }

  // ERROR_PEER_LOST when a rank that has not finished the step has left or ended.
  Status FindLoss(uint64_t step) const;
  // The same of some ranks in whatever step; of one whose process has ended, or also of one that
  // has left.
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) const;

  // The same of one rank in its pair lane; `said`: it told the others, with its last message.
  Status FindDeparture(int rank, bool* said) const;

  // What this rank waits for in its pair lane, for the messages of others; empty: nothing.
  void NotePairCall(const std::string& text) { board_.member(rank_).pair_call.Write(text); }
  // What a rank is doing: for the message of a time-out.
  std::string DescribeRank(int rank) const;

  // Which ranks hold up the step, and what they are doing: for the message of a time-out.
  std::string DescribeLate(uint64_t step) const;

 private:
  void WakeUp(int peer, Lane lane);
  void SleepOn(Lane lane, uint32_t bell);
  // On another host: there is only what its watcher has told.
  bool IsRemote(int rank) const {
    return group_.peers[static_cast<size_t>(rank)].host != group_.host;
  }
  // How long the watcher that speaks for it has said nothing; 0 where there is none.
  int64_t SilentMs(int rank) const;
  std::string DescribeState(int rank) const;
  bool HasEnded(int rank) const;
  bool HasLeft(int rank) const;
  Status Lost(int rank) const;
  // `failed`: what GroupState::failed_rank says, not 0. A peer's number is not trusted.
  int Reporter(uint32_t failed) const {
    return static_cast<int>((failed - 1) % static_cast<uint32_t>(size_));
  }
  uint64_t FailedStep(uint32_t failed) const {
    return board_.member(Reporter(failed)).failed_step.load(std::memory_order_relaxed);
  }
  std::string DescribeUnfinished(uint64_t step, bool begun) const;

  Group group_;
  Board board_;
  HeadPlaces heads_;
  int rank_;
  int size_;
};

}  // namespace collops::control
