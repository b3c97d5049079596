#include "comm/backends/ucx/host_map.h"

#include <algorithm>

namespace collops::ucx {

HostMap::HostMap(const control::Group& group, int rank) : own_(group.host) {
  for (const control::Peer& peer : group.peers) {
    const auto host = static_cast<size_t>(peer.host);
    ranks_.resize(std::max(ranks_.size(), host + 1));
    index_.push_back(static_cast<int>(ranks_[host].size()));
    ranks_[host].push_back(static_cast<int>(host_of_.size()));
    host_of_.push_back(peer.host);
  }
  own_index_ = LocalIndex(rank);
}

std::vector<int> HostMap::OtherHosts() const {
  std::vector<int> others;
  for (int i = 1; i < hosts(); ++i) others.push_back((own_ + i) % hosts());
  return others;
}

std::vector<int> HostMap::Sources() const {
  std::vector<int> sources;
  for (const int host : OtherHosts()) {
    const std::vector<int>& there = RanksOf(host);
    sources.push_back(there[static_cast<size_t>(own_index_) % there.size()]);
  }
  return sources;
}

std::vector<int> HostMap::Targets() const {
  std::vector<int> targets;
  for (const int host : OtherHosts()) {
    for (const int rank : RanksOf(host)) {
      const auto speaker = static_cast<size_t>(LocalIndex(rank)) % own_ranks().size();
      if (speaker == static_cast<size_t>(own_index_)) targets.push_back(rank);
    }
  }
  return targets;
}

}  // namespace collops::ucx
