#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/control.h"
#include "comm/pairs/pair_lane.h"
#include "core/deadline.h"

namespace collops {

// The peers and tags of a list are such that a rank of `rank_size` can have them.
Status CheckTransfers(const char* name, const Transfer* list, int count, int rank_size);

// Sends and receives that were asked for in one call. The messenger's, but for `list` before the
// call and after its end.
struct Batch {
  const char* name = "";
  std::vector<Transfer> list;
  std::shared_ptr<const void> keep;     // until the end; goes with whoever lets go of it last
  std::vector<TransferHandle> handles;  // once they are in the lane
  size_t first_open = 0;                // of these, none before it is under way
  Status outcome;                       // once it has ended
  std::atomic<bool> ended{false};
};

// The messages of one communicator rank: calls over its pair lane, and what the lane asks of the
// group. Owned by the communicator. The lane is behind a mutex, the baton: of the threads that wait
// for messages one leads, which moves what is under way and naps for all; waits of group calls
// move it while no thread leads. Thread-safe. Waits for the peers that messages name, and for no
// one else: in Run() and Wait() until the time-out, in Attend() until there is nothing to do.
class Messenger : private PairGroup {
 public:
  // `wire` belongs to the backend, and stays until the last call has ended.
  Messenger(control::Control* control, PairWire* wire);

  // Posts all, waits until all are over, and sets `source` of receives. The first error of one of
  // them; other than of a refusal, it ends the group.
  Status Run(const char* name, Transfer* list, int count);
  // Takes part in them with a refusal, and does not wait.
  Status Refuse(const Transfer* list, int count, const Status& why);

  // Begins a batch without waiting for anyone, also not for a thread that is in the lane.
  void Start(const std::shared_ptr<Batch>& batch);
  // Waits for its end as Run() does, until `deadline`; none: the group's time-out from here on. Any
  // thread, more than once.
  Status Wait(Batch* batch, const std::optional<Deadline>& deadline);
  // Whether it has ended, after a look at what has come.
  bool Test(Batch* batch);
  // Ends what is under way: this rank leaves.
  void End(const Status& why);

  // For a thread that looks after messages which nobody waits for. `wake` is called, without the
  // baton, when there are such; Attend() returns once there are none, or `enough` holds.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }
  // Gives the peers a moment to make room for the verdicts that this rank owes them. Returns at
  // once where another thread looks after the lane.
  void Settle(double limit_s);
  bool OwesVerdicts() const { return lane_.OwesVerdicts(); }
  bool NeedsAttention() const;
  void Attend(const std::function<bool()>& enough);
  // Makes a thread that naps for the lane look up.
  void Rouse() { endpoint_->Ring(endpoint_->rank(), control::kPairLane); }

 private:
  using Baton = std::unique_lock<std::mutex>;

  // What a thread waits for: the end of a batch, or of all that is under way; and until when.
  struct Goal {
    const char* name = "";
    Batch* batch = nullptr;
    const std::function<bool()>* enough = nullptr;
    std::optional<Deadline> deadline;  // none: the group's time-out
    bool noted = false;                // on the board, for the messages of others
  };

  bool Failed() const override { return endpoint_->GroupFailed(control::kAnyStep); }
  Status Failure() const override { return endpoint_->GroupFailure(); }
  std::string NameRank(int rank) const override { return endpoint_->Who(rank); }

  // The baton, which a thread that leads gives away when asked.
  Baton Claim();
  void Yield(Baton* baton);

  // What follows but Pump() is done with the baton.
  void Post(Batch* batch);
  // Posts what was started; whether that was anything.
  bool TakeStarted();
  // Those that were started and have ended, to be let go of without the baton.
  std::vector<std::shared_ptr<Batch>> TakeEnded();
  bool Poll();
  bool HasEnded(Batch* batch);
  bool Reached(const Goal& goal);
  Status Await(Goal* goal, Baton* baton);
  void Follow(Baton* baton);
  Status Lead(Goal* goal, Baton* baton);
  bool Nap(Goal* goal, Baton* baton);
  Status Look(Goal* goal, Baton* baton);
  Status DescribeTimeout(const Goal& goal);
  void FindLosses();
  // Once the lane has ended: the group ends with it. Calls that were begun before are whole.
  void Publish();
  // Passes the lane on to who can look after it.
  void HandOver(Baton* baton);

  // Of waits of group calls.
  control::Pumped Pump();

  control::Control* control_;
  control::Endpoint* endpoint_;
  std::function<void()> wake_;
  mutable std::mutex baton_;  // of the lane: who holds it runs it
  PairLane lane_;
  Batch own_;  // of Run(), kept for its memory
  bool own_used_ = false;
  std::atomic<bool> led_{false};   // a thread leads; changed with the baton
  bool attends_ = false;           // the one that leads waits for nothing itself
  std::atomic<int> claims_{0};     // threads that want the baton
  std::condition_variable moved_;  // those who follow wait here
  int followers_ = 0;
  std::vector<std::shared_ptr<Batch>> open_;  // started and posted
  std::mutex started_mutex_;
  std::vector<std::shared_ptr<Batch>> started_;  // not posted yet
  std::atomic<bool> has_started_{false};
};

}  // namespace collops
