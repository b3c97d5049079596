#include "collops/comm/control/first_contact/subgroup_meeting.h"

#include <algorithm>
#include <utility>

#include "collops/comm/control/tcp/mesh.h"

namespace collops::control {
namespace {

// The longest name of a group that a proof covers: the end of a domain that many splits have made
// longer, which has the numbers that no two splits share.
constexpr size_t kMostNameBytes = 256;

std::string EndOf(const std::string& domain) {
  return domain.size() <= kMostNameBytes ? domain : domain.substr(domain.size() - kMostNameBytes);
}

}  // namespace

PartMeeting::PartMeeting(const GroupSpec& spec, const JobIdentity& job, int64_t segment_bytes)
    : spec_(spec) {
  const std::vector<tcp::Row>& rows = introduction().rows;
  const std::vector<int> host_of = tcp::HostsOf(rows);
  for (size_t r = 0; r < rows.size(); ++r) ranks_.push_back({host_of[r], rows[r].pid});
  spec_.watch = [this, watch = spec.watch] {
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    return watch ? watch() : Ok();
  };
  host_ = std::make_unique<HostRanks>(spec_, job, ranks_, introduction().address, segment_bytes);
}

void PartMeeting::Stop() {
  Meeting::Stop();
  host_->Stop();
}

Status PartMeeting::Complete(const Deadline& deadline, Group* group) {
  COLLOPS_RETURN_IF_ERROR(host_->Complete(deadline, group));
  group->address = introduction().address;
  if (RanksOn(ranks_, group->host).front() != spec_.rank) return Ok();
  const std::string name = EndOf(spec_.comm_domain);
  const HostsToJoin hosts = {name, introduction().rows, introduction().secret,
                             introduction().listener.get(), spec_.watch};
  return JoinHosts(spec_, hosts, deadline, group);
}

bool OnSeveralHosts(const Group& group, const std::vector<int>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return group.peers[static_cast<size_t>(rank)].host !=
           group.peers[static_cast<size_t>(ranks.front())].host;
  });
}

}  // namespace collops::control
