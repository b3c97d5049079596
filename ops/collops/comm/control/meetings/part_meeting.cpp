#include "collops/comm/control/meetings/part_meeting.h"

#include "collops/comm/control/meetings/hosts_meeting.h"

namespace collops::control {
namespace {

// The longest name of a group that a proof covers: the end of a domain that many splits have made
// longer, which has the numbers that no two splits share.
constexpr size_t kMostNameBytes = 256;

std::string EndOf(const std::string& domain) {
  return domain.size() <= kMostNameBytes ? domain : domain.substr(domain.size() - kMostNameBytes);
}

}  // namespace

PartMeeting::PartMeeting(const CommunicatorSpec& spec, const JobIdentity& job,
                         int64_t segment_bytes)
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
                             introduction().door.get(), spec_.watch};
  return JoinHosts(spec_, hosts, deadline, group);
}

}  // namespace collops::control
