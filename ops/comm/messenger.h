#pragma once

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

// The messages of one communicator rank: blocking calls over its pair lane, and what the lane asks
// of the group. Owned by the communicator, whose calls its functions are the bodies of. The lane is
// behind a mutex, so that waits of group calls may move what is under way meanwhile. Run() waits
// until the time-out for the peers that the messages name, and for no one else.
class Messenger : private PairGroup {
 public:
  // `wire` belongs to the backend, and stays until the last call has ended.
  Messenger(control::Control* control, PairWire* wire);

  // Posts all, waits until all are over, and sets `source` of receives. The first error of one of
  // them; other than of a refusal, it ends the group.
  Status Run(const char* name, Transfer* list, int count);
  // Takes part in them with a refusal, and does not wait.
  Status Refuse(const Transfer* list, int count, const Status& why);

 private:
  // A call that waits.
  struct Wait {
    const char* name;
    const Transfer* list;
    std::optional<Deadline> deadline;
  };

  bool Failed() const override { return endpoint_->GroupFailed(control::kAnyStep); }
  Status Failure() const override { return endpoint_->GroupFailure(); }
  std::string NameRank(int rank) const override { return endpoint_->Who(rank); }

  // Moves what is under way, if no other thread is at it.
  void Pump();
  Status Await(Wait* wait, std::unique_lock<std::mutex>* baton);
  Status Look(Wait* wait);
  Status DescribeTimeout(const Wait& wait);
  void FindLosses();
  bool AllDone();
  // Once the lane has ended: the group ends with it. Calls that were begun before are whole.
  void Publish();

  control::Control* control_;
  control::Endpoint* endpoint_;
  std::mutex baton_;  // of the lane: who holds it runs it
  PairLane lane_;
  std::vector<TransferHandle> handles_;  // of the call that runs
  size_t first_open_ = 0;                // of these, none before it is under way
};

}  // namespace collops
