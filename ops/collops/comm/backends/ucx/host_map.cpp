#include "collops/comm/backends/ucx/host_map.h"

#include <algorithm>

namespace collops::ucx {

HostMap::HostMap(const control::Group& group, int rank) : own_(group.host) {
  for (const control::Peer& peer : group.peers) Add(peer.host);
  own_index_ = LocalIndex(rank);
}

HostMap::HostMap(const std::vector<int>& host_of, int rank)
    : own_(host_of[static_cast<size_t>(rank)]) {
  for (const int host : host_of) Add(host);
  own_index_ = LocalIndex(rank);
}

void HostMap::Add(int host) {
  const auto index = static_cast<size_t>(host);
  ranks_.resize(std::max(ranks_.size(), index + 1));
  index_.push_back(static_cast<int>(ranks_[index].size()));
  ranks_[index].push_back(static_cast<int>(host_of_.size()));
  host_of_.push_back(host);
}

std::vector<int> HostMap::OtherHosts() const {
  std::vector<int> others;
  for (int i = 0; i + 1 < hosts(); ++i) others.push_back(OtherHost(own_, i));
  return others;
}

std::vector<int> HostMap::Sources() const {
  std::vector<int> sources;
  const int rank = own_ranks()[static_cast<size_t>(own_index_)];
  for (const int host : OtherHosts()) sources.push_back(SpeakerOf(host, rank));
  return sources;
}

std::vector<int> HostMap::Targets() const {
  std::vector<int> targets;
  const int own = own_ranks()[static_cast<size_t>(own_index_)];
  for (const int host : OtherHosts()) {
    for (const int rank : RanksOf(host)) {
      if (Speaks(own, rank)) targets.push_back(rank);
    }
  }
  return targets;
}

}  // namespace collops::ucx
