#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator_spec.h"
#include "comm/control/bootstrap/group.h"
#include "comm/placement/job.h"
#include "core/deadline.h"
#include "core/status.h"

namespace collops::control {

// First contact of the ranks of one host. Rank 0 listens on an abstract socket whose name is the
// hash of user, job, backend and comm_domain; the others connect, say who they are and hand over
// their mailbox; rank 0 then hands everyone's to everyone, with the common segment. Begin() never
// waits; Complete() waits for all ranks until the deadline, and names the missing ones. Not
// thread-safe, but for Stop().
class Meeting {
 public:
  // `segment_bytes`: of the memory that the ranks will share.
  static std::unique_ptr<Meeting> Create(const CommunicatorSpec& spec, const JobIdentity& job,
                                         int64_t segment_bytes);

  virtual ~Meeting() = default;

  virtual void Begin() = 0;
  virtual Status Complete(const Deadline& deadline, Group* group) = 0;
  // Takes what has come already, without waiting; true when that completes first contact.
  virtual bool Settle(Group* group) = 0;
  // Ends it early, or after Complete() failed; whoever waits for this rank gets `reason`. Not while
  // Complete() runs.
  virtual void Cancel(const Status& reason) = 0;
  // Makes a Complete() that runs in another thread return soon.
  void Stop() { stopped_.store(true, std::memory_order_release); }

 protected:
  // ERROR_ABORTED once the meeting was stopped or the user wants the wait to end.
  Status CheckWanted() const;
  // What the one who watches has seen: that somebody will not come.
  Status CheckComing() const { return watch_ ? watch_() : Ok(); }
  // Somebody who hangs up has first told why to those whom the one who watches asks.
  Status Explained(const Status& status) const {
    if (status.code() == ERROR_PEER_LOST) RETURN_IF_ERROR(CheckComing());
    return status;
  }
  bool Wanted() const { return CheckWanted().ok(); }
  // Asked again and again by a Complete() that waits: `line` goes to standard error once, when the
  // first asking is ten seconds ago.
  void TellWaiting(const std::string& line);

 private:
  std::optional<Deadline> silence_;
  bool told_waiting_ = false;
  std::function<Status()> watch_;
  std::atomic<bool> stopped_{false};
};

}  // namespace collops::control
