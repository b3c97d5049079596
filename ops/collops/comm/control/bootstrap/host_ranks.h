#pragma once

#include <string>
#include <vector>

#include "collops/comm/communicator_spec.h"
#include "collops/comm/control/bootstrap/group.h"
#include "collops/comm/control/bootstrap/meeting.h"
#include "collops/comm/placement/job.h"
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
// has the bell of this host's watcher. Not thread-safe, except Stop().
class HostRanks : public Meeting {
 public:
  // `spec` is the group's; `ranks` has an entry per rank. `host_name` is for messages.
  HostRanks(const CommunicatorSpec& spec, const JobIdentity& job, std::vector<RankOnHost> ranks,
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

}  // namespace collops::control
