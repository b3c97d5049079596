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

}  // namespace collops::ucx
