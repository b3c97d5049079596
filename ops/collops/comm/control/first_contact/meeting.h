#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collops/comm/control/group.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// What is awaited: logged once, ten seconds after the first call.
class WaitingLine {
 public:
  void Tell(const std::function<std::string()>& line);

 private:
  std::optional<Deadline> silence_;
  bool told_ = false;
};

// Its line at first contact: "collops: rank 1: waiting for rank 2 of 3 (job X, from Y)". `job`:
// DescribeJob().
std::string WaitingText(int rank, const std::string& comm_domain, const std::string& whom,
                        const std::string& job);

// First contact of the ranks of one host. Rank 0 listens on an abstract socket whose name is the
// hash of user, job, backend and comm_domain. The other ranks connect, identify themselves and send
// the descriptor of their mailbox; rank 0 then sends all mailboxes and the shared segment to every
// rank. Begin() does not wait; Complete() waits for all ranks until the deadline, and names the
// missing ones. Not thread-safe, except Stop().
class Meeting {
 public:
  // `segment`: the memory that the ranks will share. `doorbell`: they also share a
  // Group::doorbell, for the watcher of one host among several.
  static std::unique_ptr<Meeting> Create(const GroupSpec& spec, const JobIdentity& job,
                                         const SegmentShape& segment, bool doorbell = false);

  explicit Meeting(const GroupSpec& spec) : watch_(spec.watch) {}
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  virtual void Begin() = 0;
  virtual Status Complete(const Deadline& deadline, Group* group) = 0;
  // Processes the messages that have arrived, without waiting; true if first contact is complete.
  virtual bool TryComplete(Group* group) = 0;
  // Ends first contact early, or after Complete() failed; ranks that wait for this one get
  // `reason`. Must not be called while Complete() runs.
  virtual void Cancel(const Status& reason) = 0;
  // Instead of all these: a rank that cannot come tells those that would wait for it, as far as
  // they can be reached. Waits at most `patience_s` seconds, and a little.
  virtual void Decline(const Status&, double /*patience_s*/) {}
  // From any thread, after Cancel(): tells those whom it could not tell at once. May wait a second.
  virtual void TellCancelled() {}
  // Makes a Complete() that runs in another thread return soon.
  virtual void Stop() { stopped_.store(true, std::memory_order_release); }

 protected:
  // ERROR_ABORTED after Stop(), or if the user has interrupted the wait.
  Status CheckWanted() const;
  // Asks spec.watch whether a rank is known to be unable to come.
  Status CheckComing() const { return watch_ ? watch_() : Ok(); }
  // For a peer that hung up: spec.watch may know the reason, which then replaces `status`.
  Status Explained(const Status& status) const {
    if (status.code() == ERROR_PEER_LOST) COLLOPS_RETURN_IF_ERROR(CheckComing());
    return status;
  }
  bool Wanted() const { return CheckWanted().ok(); }
  // GroupSpec::watch of a meeting that is a part of this one: it ends when this one is stopped.
  std::function<Status()> WatchOfPart() const {
    return [this] {
      COLLOPS_RETURN_IF_ERROR(CheckWanted());
      return CheckComing();
    };
  }
  WaitingLine waiting_;  // of a Complete() that waits

 private:
  const std::function<Status()> watch_;
  std::atomic<bool> stopped_{false};
};

// Waits until the file of `open`, a table that somebody still writes, holds a complete one. `watch`
// is called all along: Ok, or what ends the wait.
Status AwaitRankTable(const RankTable& open, const Deadline& deadline,
                      const std::function<Status()>& watch, RankTable* table);

// First contact of a group whose rank table somebody still writes: Complete() waits until the table
// is complete, checks it, and then meets the others. All of it ends at the one deadline.
class AwaitedTable : public Meeting {
 public:
  // Makes the meeting that follows, once the table is complete. `spec` has a watch of this class.
  using Factory = std::function<Status(const GroupSpec& spec, const RankTable& table,
                                       std::unique_ptr<Meeting>* meeting)>;

  AwaitedTable(const GroupSpec& spec, Factory factory);

  void Begin() override {}
  Status Complete(const Deadline& deadline, Group* group) override;
  bool TryComplete(Group* group) override {
    return meeting_ != nullptr && meeting_->TryComplete(group);
  }
  void Cancel(const Status& reason) override {
    if (meeting_ != nullptr) meeting_->Cancel(reason);
  }
  void TellCancelled() override {
    if (meeting_ != nullptr) meeting_->TellCancelled();
  }

 private:
  GroupSpec spec_;
  const Factory factory_;
  std::unique_ptr<Meeting> meeting_;  // from when the table is complete
};

}  // namespace collops::control
