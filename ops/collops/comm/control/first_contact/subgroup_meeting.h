#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/control/tcp/job_listener.h"
#include "collops/comm/control/tcp/row.h"

namespace collops::control {

// What the ranks of a subgroup on several hosts have told each other over its parent, the group it
// was split from. Owned by the subgroup's spec.
struct Introduction {
  std::vector<tcp::Row> rows;  // by rank of the subgroup; a host's name is its number in the parent
  tcp::JobSecret secret;
  std::string address;                         // of this host
  std::unique_ptr<tcp::JobListener> listener;  // open in the lowest rank of each host
};

// First contact of a subgroup on several hosts: the ranks of each host meet in its shared memory,
// and the lowest one connects to the other hosts and runs the watcher. Not thread-safe, except
// Stop().
class PartMeeting : public Meeting {
 public:
  // `spec` has an introduction.
  PartMeeting(const GroupSpec& spec, const JobIdentity& job, int64_t segment_bytes);

  void Begin() override { host_->Begin(); }
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group* group) override { return host_->Settle(group); }
  void Cancel(const Status& reason) override { host_->Cancel(reason); }
  void Stop() override;

 private:
  Introduction& introduction() { return *spec_.introduction; }

  GroupSpec spec_;
  std::vector<RankOnHost> ranks_;
  std::unique_ptr<HostRanks> host_;
};

// Whether these ranks of a group are on several hosts.
bool OnSeveralHosts(const Group& group, const std::vector<int>& ranks);

}  // namespace collops::control
