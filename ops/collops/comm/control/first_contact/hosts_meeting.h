#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/control/group.h"
#include "collops/comm/control/tcp/job_port.h"
#include "collops/comm/control/tcp/rendezvous.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/job_place.h"
#include "collops/core/deadline.h"

namespace collops::control {

// A rank of a group on several hosts, as it announced itself when the hosts met.
struct RankOnHost {
  int host = 0;  // hosts are numbered in the order of their first ranks
  pid_t pid = 0;
};

// The ranks on `host`, in order.
std::vector<int> RanksOn(const std::vector<RankOnHost>& ranks, int host);

// First contact of the ranks of this host, which are some of a group's: a Meeting among them, whose
// result describes the whole group. Peers of other hosts have a pid and a host only, and every rank
// has the doorbell of this host's watcher. Not thread-safe, except Stop().
class HostRanks : public Meeting {
 public:
  // `spec` is the group's; `ranks` has an entry per rank. `host_name` is for messages.
  HostRanks(const GroupSpec& spec, const JobIdentity& job, std::vector<RankOnHost> ranks,
            std::string host_name, int64_t segment_bytes);

  void Begin() override { meeting_->Begin(); }
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group* group) override;
  void Cancel(const Status& reason) override { meeting_->Cancel(reason); }

 private:
  void Expand(Group local, Group* group) const;
  std::string ListRanks() const;

  std::vector<RankOnHost> ranks_;
  std::vector<int> own_;  // the ranks of this host
  int host_ = 0;
  std::string host_name_;
  std::unique_ptr<Meeting> meeting_;  // numbers the ranks of this host from 0
};

// Opens a port at `host`, an address of this host, where the ranks of `job_id` can meet: their
// GroupSpec::meet_at is its address(). It is open as long as somebody shares it.
Status OpenMeetingPort(const std::string& host, const std::string& job_id,
                       std::shared_ptr<tcp::JobPort>* port);

// First contact of ranks on several hosts: all meet at rank 0's address, which the job's port says,
// then those of each host in its shared memory, and the lowest rank of each host connects to the
// other hosts and runs the watcher. The job's rank 0 has the job's port open from Begin() on, as
// long as this object lives; all else waits in Complete().
class HostsMeeting : public Meeting {
 public:
  static Status Create(const GroupSpec& spec, const JobIdentity& job, const JobPlace& place,
                       int64_t segment_bytes, std::unique_ptr<Meeting>* meeting);
  HostsMeeting(const GroupSpec& spec, const JobIdentity& job, const tcp::RendezvousSpec& rendezvous,
               int64_t segment_bytes);

  void Begin() override { rendezvous_->Begin(); }
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group*) override { return false; }
  // The others learn it at the job's port; Complete() itself tells them why it fails.
  void Cancel(const Status& reason) override;
  void TellCancelled() override;
  void Stop() override;

 private:
  Status Join(const std::vector<tcp::Row>& rows, const Deadline& deadline, Group* group);

  GroupSpec spec_;
  const JobIdentity job_;
  const tcp::RendezvousSpec rendezvous_spec_;
  const int64_t segment_bytes_;
  const std::unique_ptr<tcp::Rendezvous> rendezvous_;
  std::atomic<bool> came_{false};  // or has left
  std::atomic<bool> met_{false};   // all rows are known
  Status cancelled_;               // why; read by who takes owes_word_
  std::atomic<bool> owes_word_{false};
};

}  // namespace collops::control
