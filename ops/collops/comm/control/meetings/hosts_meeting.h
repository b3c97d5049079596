#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/bootstrap/meeting.h"
#include "collops/comm/control/tcp/first_contact/rendezvous.h"
#include "collops/comm/placement/job_place.h"

namespace collops::control {

// What the lowest rank of a host needs to join its host to the others.
struct HostsToJoin {
  const std::string& domain;
  const std::vector<tcp::Row>& rows;  // by rank
  const tcp::JobSecret& secret;
  tcp::Door* door;
  std::function<Status()> watch;  // as CommunicatorSpec::watch
};

// Connects this host to the others, and starts its watcher, which `group` then owns. Called by the
// lowest rank of each host, once the ranks of its host have met. Waits for the other hosts.
Status JoinHosts(const CommunicatorSpec& spec, const HostsToJoin& hosts, const Deadline& deadline,
                 Group* group);

// Opens a port at `host`, an address of this host, where the ranks of `job_id` can meet: their
// CommunicatorSpec::meet_at is its address(). It is open as long as somebody shares it.
Status OpenMeetingPort(const std::string& host, const std::string& job_id,
                       std::shared_ptr<tcp::JobPort>* port);

// First contact of ranks on several hosts: all meet at rank 0's address, which the job's port says,
// then those of each host in its shared memory, and the lowest rank of each host connects to the
// other hosts and runs the watcher. The job's rank 0 has the job's port open from Begin() on, as
// long as this object lives; all else waits in Complete().
class HostsMeeting : public Meeting {
 public:
  static Status Create(const CommunicatorSpec& spec, const JobIdentity& job, const JobPlace& place,
                       int64_t segment_bytes, std::unique_ptr<Meeting>* meeting);
  HostsMeeting(const CommunicatorSpec& spec, const JobIdentity& job,
               const tcp::RendezvousSpec& rendezvous, int64_t segment_bytes);

  void Begin() override { rendezvous_->Begin(); }
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group*) override { return false; }
  // The others learn it at the job's port; Complete() itself tells them why it fails.
  void Cancel(const Status& reason) override;
  void TellCancelled() override;
  void Stop() override;

 private:
  Status Join(const std::vector<tcp::Row>& rows, const Deadline& deadline, Group* group);

  CommunicatorSpec spec_;
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
