#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/control/board.h"
#include "collops/comm/control/group.h"
#include "collops/comm/control/signals.h"
#include "collops/comm/rank_set.h"
#include "collops/core/status.h"

namespace collops::control {

// The longest sleep between two looks around.
constexpr int kMostSleepMs = 20;

// Later than every step.
constexpr uint64_t kAnyStep = UINT64_MAX;

// Milliseconds of a clock that all processes of a host share.
int64_t MonotonicMs();
// Wakes the watcher of this host (Group::doorbell).
void RingDoorbell(int doorbell);

// One rank's access to the board: publishes this rank's state and reads the peers'. Owned by
// Control; one thread at a time, except PublishFailure and PublishLeft. Waits only in
// SleepUntilRung().
class Endpoint {
 public:
  Endpoint(Group group, int rank, int rank_size)
      : Endpoint(std::make_shared<Group>(std::move(group)), rank, rank_size) {}
  // Endpoints of several ranks in one thread share what they know of the group.
  Endpoint(std::shared_ptr<Group> group, int rank, int rank_size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Board& board() const { return board_; }
  Group& group() { return *group_; }
  pid_t pid(int rank) const { return group_->peers[static_cast<size_t>(rank)].pid; }
  // "rank 2 (pid 77)"
  std::string Who(int rank) const {
    const int number = group_->peers[static_cast<size_t>(rank)].number;
    return Concat("rank ", number < 0 ? rank : number, " (pid ", pid(rank), ")");
  }

  // Where the heads of steps lie: on the board, or in the backend's own first signals.
  void PlaceHeads(const HeadPlaces& places) { heads_ = places; }
  SignalHead& head(int rank, uint64_t step) const { return heads_.At(rank, step); }
  // Whether `rank` has begun the step.
  bool HasBegun(int rank, uint64_t step) const { return control::HasBegun(head(rank, step), step); }

  // Wakes a peer that sleeps. A peer that falls asleep at this moment may miss it and then wakes by
  // itself after at most kMostSleepMs; this saves a fence in every signal.
  void Ring(int peer, Lane lane = kGroupLane) {
    const uint32_t asleep = board_.member(peer).asleep[lane].load(std::memory_order_relaxed);
    if (asleep != kAwake) WakeUp(peer, asleep == kInGroupLane ? kGroupLane : lane);
  }
  void RingAll();
  // As RingAll(), but the watcher sleeps on: it looks by itself after a while.
  void RingHost();
  // Wakes all peers in all lanes.
  void RingEveryLane();

  // Sleeps until rung, at most `most_ms`, unless `ready` holds. `both`, for the group lane: a ring
  // of the pair lane also wakes it, unless another thread sleeps there. One thread per lane.
  template <typename Ready>
  void SleepUntilRung(Lane lane, Ready&& ready, bool both = false, int most_ms = kMostSleepMs) {
    Member& self = board_.member(rank_);
    uint32_t awake = kAwake;
    if (both) self.asleep[kPairLane].compare_exchange_strong(awake, kInGroupLane);
    self.asleep[lane].store(kInItsLane, std::memory_order_seq_cst);
    const uint32_t doorbell = self.doorbell[lane].load(std::memory_order_seq_cst);
    if (!ready()) SleepOn(lane, doorbell, most_ms);
    self.asleep[lane].store(kAwake, std::memory_order_relaxed);
    uint32_t here = kInGroupLane;
    if (both) self.asleep[kPairLane].compare_exchange_strong(here, kAwake);
  }

  // Ends the group from `step` on. Of two failures the one in the earlier step counts; in the same
  // step, the first. A rank in an earlier step can still complete it.
  void PublishFailure(const Status& status, uint64_t step);
  // Ok, or the failure in `step` or an earlier one, with the rank that reported it.
  Status GroupFailure(uint64_t step = kAnyStep) const {
    return GroupFailed(step) ? ReportedFailure() : Ok();
  }
  bool GroupFailed(uint64_t step) const {
    const auto step_of = [this](uint32_t failed) { return FailedStep(failed); };
    return Failures::HasFailed(board_.group().failed_rank, step, step_of);
  }
  // As GroupFailure(), after the last read of the peers' memory in the step.
  Status GroupFailureMeanwhile(uint64_t step) const {
    const auto step_of = [this](uint32_t failed) { return FailedStep(failed); };
    return Failures::HasFailedMeanwhile(board_.group().failed_rank, step, step_of)
               ? ReportedFailure()
               : Ok();
  }

  // Marks this rank as gone, after `calls` calls on streams, which have ended. The other ranks read
  // `reason` when they next wait for it.
  void PublishLeft(const std::string& reason, uint64_t calls = 0, Leaving how = kClosed);

  // This rank has finished the step.
  void Finish(uint64_t step);
  // As Finish(), without a word to the other hosts: for a step that has ended well.
  void FinishOnHost(uint64_t step);
  bool HasFinished(int rank, uint64_t step) const {
    return control::HasFinished(board_.member(rank).finished, step);
  }

  // ERROR_PEER_LOST if a rank that has not finished the step has left or ended.
  Status FindLoss(uint64_t step) const;
  // ERROR_PEER_LOST if a rank has left or ended, unless it closed the communicator after `calls`
  // calls on streams or more and is not one of `needed`.
  Status FindLossOnStreams(uint64_t calls, const RankSet& needed) const;
  // ERROR_PEER_LOST if the process of one of `ranks` has ended; with `also_left`, also if one has
  // left.
  Status FindLossAmong(const std::vector<int>& ranks, bool also_left) const;

  // Whether a rank can never come again: it has closed its communicator, or its process has ended.
  bool HasLeft(int rank) const;
  // Tells the other ranks that this rank's calls on streams have ended, and that it makes no more.
  void PublishCallsEnded();
  // Whether a rank has said so, or its process has ended.
  bool HaveCallsEnded(int rank) const;
  // As HasLeft(), for a roll call of several hosts: kProcessEnded if that is known, and kCutOff if
  // the rank's host only seems to be.
  Ending EndingOf(int rank) const;
  // Whether another rank goes on with a smaller group.
  bool OthersGoOn() const;

  // As FindLoss(), for one rank in its pair lane. `left`: the rank has closed its communicator.
  Status FindDeparture(int rank, bool* left) const;

  // Tells `peer`, for good, that this rank has come to something that the two do together: the bits
  // of `mark`. Rings nobody.
  void MarkPair(int peer, uint8_t mark);
  // Whether `peer` has told this rank so.
  bool HasMarked(int peer, uint8_t mark) const {
    return (board_.pair_mark(peer, rank_).load(std::memory_order_acquire) & mark) == mark;
  }

  // A rank of another host: its state here is what its watcher has sent.
  bool IsRemote(int rank) const {
    return group_->peers[static_cast<size_t>(rank)].host != group_->host;
  }

  // What this rank waits for in its pair lane, for the messages of other ranks; empty: nothing.
  void SetPairCall(const std::string& text) { board_.member(rank_).pair_call.Write(text); }
  // What a rank is doing, for the message of a time-out.
  std::string DescribeRank(int rank) const;

  // Which ranks hold up the step and what they are doing, for the message of a time-out.
  std::string DescribeLate(uint64_t step) const;

 private:
  using Failures = FailureOrder<MachineMemory>;

  // The group's failure, whatever its step.
  Status ReportedFailure() const;
  void WakeUp(int peer, Lane lane);
  void SleepOn(Lane lane, uint32_t doorbell, int most_ms);
  // Milliseconds since the rank's watcher was last known to be alive; 0 if it has no watcher.
  int64_t SilentMs(int rank) const;
  std::string DescribeState(int rank) const;
  // Whose process shows whether the rank is there: of a remote rank, the one that runs this host's
  // watcher, without which nothing is heard of other hosts.
  int WitnessOf(int rank) const;
  bool HasEnded(int rank) const;
  Status Lost(int rank) const;
  // `failed`: GroupState::failed_rank, not 0. A peer wrote it, so it is brought into range.
  int Reporter(uint32_t failed) const {
    return static_cast<int>((failed - 1) % static_cast<uint32_t>(size_));
  }
  uint64_t FailedStep(uint32_t failed) const {
    return board_.member(Reporter(failed)).failed_step.load(std::memory_order_relaxed);
  }
  std::string DescribeUnfinished(uint64_t step, bool begun) const;

  std::shared_ptr<Group> group_;
  Board board_;
  HeadPlaces heads_;
  int rank_;
  int size_;
};

}  // namespace collops::control
