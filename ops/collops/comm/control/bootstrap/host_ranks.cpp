#include "collops/comm/control/bootstrap/host_ranks.h"

#include <algorithm>
#include <utility>

#include "collops/comm/control/board.h"

namespace collops::control {

std::vector<int> RanksOn(const std::vector<RankOnHost>& ranks, int host) {
  std::vector<int> on_host;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].host == host) on_host.push_back(static_cast<int>(r));
  }
  return on_host;
}

HostRanks::HostRanks(const CommunicatorSpec& spec, const JobIdentity& job,
                     std::vector<RankOnHost> ranks, std::string host_name, int64_t segment_bytes)
    : ranks_(std::move(ranks)),
      host_(ranks_[static_cast<size_t>(spec.rank)].host),
      host_name_(std::move(host_name)) {
  own_ = RanksOn(ranks_, host_);
  CommunicatorSpec local = spec;
  local.rank = static_cast<int>(std::find(own_.begin(), own_.end(), spec.rank) - own_.begin());
  local.rank_size = static_cast<int>(own_.size());
  // The meeting stops with this one. Two hosts of a test may share one abstract namespace.
  local.watch = [this, watch = spec.watch] {
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    return watch ? watch() : Ok();
  };
  const JobIdentity place = {Concat(job.id, "/host/", host_), job.source};
  meeting_ = Meeting::Create(local, place, segment_bytes, true);
}

Status HostRanks::Complete(const Deadline& deadline, Group* group) {
  COLLOPS_CHECK_ARG(own_.size() <= static_cast<size_t>(kMaxRanks), ERROR_UNSUPPORTED, "host ",
                    host_name_, " has ", own_.size(), " ranks of the group: at most ", kMaxRanks,
                    " on a host");
  Group local;
  const Status met = meeting_->Complete(deadline, &local);
  if (!met.ok()) {
    return Error(met.code(), "ranks ", ListRanks(), " of host ", host_name_,
                 ", there numbered 0 to ", own_.size() - 1, ": ", met.message());
  }
  Expand(std::move(local), group);
  return Ok();
}

bool HostRanks::Settle(Group* group) {
  Group local;
  if (!meeting_->Settle(&local)) return false;
  Expand(std::move(local), group);
  return true;
}

void HostRanks::Expand(Group local, Group* group) const {
  group->segment = std::move(local.segment);
  group->inbox = std::move(local.inbox);
  group->bell = std::move(local.bell);
  group->host = host_;
  group->peers.clear();
  group->peers.resize(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    group->peers[r].pid = ranks_[r].pid;
    group->peers[r].host = ranks_[r].host;
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    Peer& peer = group->peers[static_cast<size_t>(own_[i])];
    peer = std::move(local.peers[i]);
    peer.host = host_;
  }
}

std::string HostRanks::ListRanks() const {
  std::string list;
  for (const int rank : own_) list += Concat(list.empty() ? "" : ", ", rank);
  return list;
}

}  // namespace collops::control
