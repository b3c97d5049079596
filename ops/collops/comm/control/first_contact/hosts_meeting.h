#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/job_port.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/control/first_contact/port_contact.h"
#include "collops/comm/control/first_contact/rendezvous.h"
#include "collops/comm/control/group.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/placement.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// First contact of the ranks of this host, which are some of a group's: a Meeting among them, whose
// result describes the whole group. Peers of other hosts have a pid and a host only, and every rank
// has the doorbell of this host's watcher. Not thread-safe.
class HostRanks {
 public:
  // `spec` is the group's; `rows` has an entry per rank. `host_name` is for messages.
  HostRanks(const GroupSpec& spec, const JobIdentity& job, const std::vector<Row>& rows,
            std::string host_name, int64_t segment_bytes);

  void Begin() { meeting_->Begin(); }
  Status Complete(const Deadline& deadline, Group* group);
  bool TryComplete(Group* group);
  void Cancel(const Status& reason) { meeting_->Cancel(reason); }
  // Whether `rank` is to connect this host to others: the lowest here, and there are others.
  bool ConnectsHost(int rank) const { return rank == own_.front() && own_.size() < pids_.size(); }

 private:
  void Expand(Group local, Group* group) const;

  std::vector<pid_t> pids_;  // by rank
  std::vector<int> host_of_;
  std::vector<int> own_;  // the ranks of this host
  int host_ = 0;
  std::string host_name_;
  std::unique_ptr<Meeting> meeting_;  // numbers the ranks of this host from 0
};

// Opens a port at `host`, an address of this host, where the ranks of `job_id` can meet: their
// GroupSpec::meet_at is its address(). It is open as long as somebody shares it.
Status OpenMeetingPort(const std::string& host, const std::string& job_id,
                       std::shared_ptr<JobPort>* port);

// First contact of ranks on several hosts. They learn of each other: those of a group meet at rank
// 0's address, which the job's port says; those of a subgroup have spec.introduction. Then the
// ranks of each host meet in its shared memory, and the lowest one connects to the other hosts and
// runs the watcher. The job's rank 0 has the job's port open from Begin() on, as long as this
// object lives. Not thread-safe, except Stop().
class HostsMeeting : public Meeting {
 public:
  // `table`: the group's, complete, or null.
  static Status Create(const GroupSpec& spec, const JobIdentity& job, const JobPlace& place,
                       const std::shared_ptr<const RankTable>& table, int64_t segment_bytes,
                       std::unique_ptr<Meeting>* meeting);
  HostsMeeting(const GroupSpec& spec, const JobIdentity& job, const RendezvousSpec& rendezvous,
               int64_t segment_bytes);
  // Of a group that another one makes: `spec` has an introduction.
  HostsMeeting(const GroupSpec& spec, const JobIdentity& job, int64_t segment_bytes);

  void Begin() override;
  Status Complete(const Deadline& deadline, Group* group) override;
  bool TryComplete(Group* group) override {
    return rendezvous_ == nullptr && host_->TryComplete(group);
  }
  // The others learn it at the job's port; Complete() itself tells them why it fails.
  void Cancel(const Status& reason) override;
  void TellCancelled() override;
  void Decline(const Status& reason, double patience_s) override {
    if (rendezvous_ != nullptr) rendezvous_->Leave(reason, patience_s);
  }
  void Stop() override;

 private:
  void MakeHost();
  Status Join(const std::shared_ptr<Lobby>& lobby, const Deadline& deadline, Group* group);

  GroupSpec spec_;
  const JobIdentity job_;
  const int64_t segment_bytes_;
  std::shared_ptr<Introduction> introduction_;
  std::unique_ptr<Rendezvous> rendezvous_;  // null: the introduction is there
  std::unique_ptr<HostRanks> host_;
  std::atomic<bool> came_{false};  // or has left
  std::atomic<bool> met_{false};   // all rows are known
  Status cancelled_;               // why; read by who takes owes_word_
  std::atomic<bool> owes_word_{false};
};

// The name of a group in the proofs of its ranks: the end of a domain that many splits have made
// longer, which has the numbers that no two splits share, and which meeting of it this is.
std::string ProofNameOf(const GroupSpec& spec);

// Whether these ranks of a group are on several hosts.
bool OnSeveralHosts(const Group& group, const std::vector<int>& ranks);

}  // namespace collops::control
