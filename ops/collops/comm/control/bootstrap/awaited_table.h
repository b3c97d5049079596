#pragma once

#include <functional>
#include <memory>

#include "collops/comm/control/bootstrap/meeting.h"
#include "collops/comm/placement/rank_table/rank_table.h"

namespace collops::control {

// Waits until the file of `open`, a table that somebody still writes, holds a complete one. `watch`
// is called all along: Ok, or what ends the wait.
Status AwaitRankTable(const RankTable& open, const Deadline& deadline,
                      const std::function<Status()>& watch, RankTable* table);

// First contact of a group whose rank table somebody still writes: Complete() waits until the table
// is complete, checks it, and then meets the others. All of it ends at the one deadline.
class AwaitedTable : public Meeting {
 public:
  // Makes the meeting that follows, once the table is complete. `spec` has a watch of this class.
  using Factory = std::function<Status(const CommunicatorSpec& spec, const RankTable& table,
                                       std::unique_ptr<Meeting>* meeting)>;

  AwaitedTable(const CommunicatorSpec& spec, Factory factory);

  void Begin() override {}
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group* group) override { return meeting_ != nullptr && meeting_->Settle(group); }
  void Cancel(const Status& reason) override {
    if (meeting_ != nullptr) meeting_->Cancel(reason);
  }
  void TellCancelled() override {
    if (meeting_ != nullptr) meeting_->TellCancelled();
  }

 private:
  CommunicatorSpec spec_;
  const Factory factory_;
  std::unique_ptr<Meeting> meeting_;  // from when the table is complete
};

}  // namespace collops::control
