#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/control.h"
#include "collops/comm/pairs/pair_lane.h"
#include "collops/core/deadline.h"

namespace collops {

// Whether the peers and tags of a list are valid for a rank of `rank_size`.
Status CheckTransfers(const char* name, const Transfer* list, int count, int rank_size);

// The sends and receives of one call. Owned by the messenger between Start() and its end.
struct Batch {
  void Set(const char* called, const Transfer* transfers, int count);

  const char* name = "";
  std::vector<OpenTransfer> list;
  std::shared_ptr<const void> keep;  // kept alive as long as the batch
  bool used = false;                 // by a call of Run()
  bool posted = false;               // to the lane
  size_t first_open = 0;             // all transfers before this one are done
  Status outcome;                    // set once the batch has ended
  std::atomic<bool> ended{false};
};

// The messages of one rank of a communicator: calls over its pair lane, and what the lane needs of
// the group. Owned by the communicator. A mutex guards the lane. Of the threads that
// wait for messages one leads: it moves messages and sleeps for all; while no thread leads, waits
// of group calls move them. Thread-safe. Waits only for the peers that messages name: in Run() and
// Wait() until the time-out, in Attend() until there is nothing to do.
class Messenger {
 public:
  // The wires belong to the backend, and must outlive the last call.
  Messenger(control::Control* control, const PairWires& wires);

  // Posts all transfers, waits until all are over, and sets `source` of receives. Returns the first
  // error of one of them; an error other than a refusal ends the group.
  Status Run(const char* name, Transfer* list, int count);
  // Takes part in the transfers with a refusal, without waiting.
  Status Refuse(const Transfer* list, int count, const Status& why);

  // Begins a batch without waiting for any rank, or for a thread that is in the lane.
  void Start(const std::shared_ptr<Batch>& batch);
  // Waits for the end of a batch as Run() does, until `deadline`; none: the group's time-out from
  // here on. Any thread, more than once.
  Status Wait(Batch* batch, const std::optional<Deadline>& deadline);
  // Reads what has arrived, then says whether the batch has ended.
  bool Test(Batch* batch);
  // Ends all transfers: this rank leaves.
  void End(const Status& why);

  // For a thread that moves messages which nobody waits for. `wake` is called, without its lock,
  // when there are such messages; Attend() returns once there are none, or `enough` holds.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
  // Waits a moment until the peers have made room for the verdicts that this rank owes them.
  // Returns at once if another thread leads the lane.
  void Settle(double limit_s);
  // The same, but waits also while another thread leads the lane, which then sends them.
  void SettleAll(double limit_s);
  bool OwesVerdicts() const { return lane_.OwesVerdicts(); }
  bool NeedsAttention() const;
  void Attend(const std::function<bool()>& enough);
  // Wakes a thread that sleeps in the lane.
  void WakeSleeper() { endpoint_->Ring(endpoint_->rank(), control::kPairLane); }

 private:
  using LaneLock = std::unique_lock<std::mutex>;

  // What a thread waits for: the end of a batch, or of all transfers; and until when.
  struct Goal {
    const char* name = "";
    Batch* batch = nullptr;
    const std::function<bool()>* enough = nullptr;
    std::optional<Deadline> deadline;  // none: the group's time-out
    bool noted = false;                // on the board, for the messages of other ranks
  };

  // Locks the lane, which a leading thread gives up when asked.
  LaneLock LockLane();
  void Yield(LaneLock* lane_lock);

  // The caller of the functions below, except ProgressMessages(), has the lane_lock.
  void Post(Batch* batch);
  // Posts the started batches; true if there were any.
  bool TakeStarted();
  // The started batches that have ended, to be released without the lane_lock.
  std::vector<std::shared_ptr<Batch>> TakeEnded();
  bool Poll();
  // Moves messages until the batch has ended; false: a sleep is due, or another thread has or wants
  // the lane.
  bool PollBriefly(Batch* batch);
  bool HasEnded(Batch* batch);
  bool Reached(const Goal& goal);
  Status Await(Goal* goal, LaneLock* lane_lock);
  void Follow(LaneLock* lane_lock);
  Status Lead(Goal* goal, LaneLock* lane_lock);
  bool Nap(Goal* goal, LaneLock* lane_lock);
  Status Look(Goal* goal, LaneLock* lane_lock);
  Status DescribeTimeout(const Goal& goal);
  void FindLosses();
  // After the lane has failed: ends the group with its failure. Earlier group calls are complete.
  void Publish();
  // Passes the lane to another thread that can move it.
  void HandOver(LaneLock* lane_lock);

  // Called by waits of group calls.
  control::MessageProgress ProgressMessages();
  control::WakeCondition WakeConditionInCall();

  // Whether this rank waits for what rings its doorbell, and for what does not.
  struct Awaited {
    bool rung = false;
    bool unrung = false;
  };
  Awaited FindAwaited() const;
  // Prepares one sleep that a doorbell does not end.
  control::WakeCondition PrepareWakeCondition(const Awaited& awaited);

  control::Control* control_;
  control::Endpoint* endpoint_;
  PairWire* remote_;  // null: every peer rings this rank's doorbell
  std::function<void()> wake_;
  mutable std::mutex lane_mutex_;
  PairLane lane_;
  std::list<Batch> of_calls_;  // of Run(), used again for their memory
  control::Spins spins_;
  std::atomic<bool> led_{false};      // a thread leads; changed under the lock
  bool attends_ = false;              // the leading thread is the one in Attend()
  std::atomic<int> lock_waiters_{0};  // threads that want the lock
  std::condition_variable moved_;     // following threads wait here
  int followers_ = 0;
  std::vector<std::shared_ptr<Batch>> open_;  // started and posted
  std::mutex started_mutex_;
  std::vector<std::shared_ptr<Batch>> started_;  // not posted yet
  std::atomic<bool> has_started_{false};
};

}  // namespace collops
