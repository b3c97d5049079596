#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/bootstrap/meeting.h"
#include "comm/control/tcp/rendezvous.h"

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

// First contact of ranks on several hosts: all meet at rank 0's address, then those of each host in
// its shared memory, and the lowest rank of each host connects to the other hosts and runs the
// watcher. Everything waits in Complete(): rank 0 listens only there, so that the groups of a
// process take turns at the one port of the job.
class HostsMeeting : public Meeting {
 public:
  // `address`: of rank 0's host.
  static Status Create(const CommunicatorSpec& spec, const JobIdentity& job,
                       const std::string& address, int64_t segment_bytes,
                       std::unique_ptr<Meeting>* meeting);
  HostsMeeting(const CommunicatorSpec& spec, const JobIdentity& job,
               const tcp::RendezvousSpec& rendezvous, int64_t segment_bytes);

  void Begin() override {}
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group*) override { return false; }
  void Cancel(const Status&) override {}
  void Stop() override;

 private:
  CommunicatorSpec spec_;
  const JobIdentity job_;
  const tcp::RendezvousSpec rendezvous_spec_;
  const int64_t segment_bytes_;
  const std::unique_ptr<tcp::Rendezvous> rendezvous_;
};

}  // namespace collops::control
