#pragma once

#include <vector>

#include "collops/comm/control/bootstrap/group.h"

namespace collops::ucx {

// Which ranks run on which host, as this rank sees it. Ranks of a host are counted in their order:
// local index 0 is the first.
class HostMap {
 public:
  HostMap(const control::Group& group, int rank);
  // `host_of`: by rank.
  HostMap(const std::vector<int>& host_of, int rank);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_.size()); }
  int own_host() const { return own_; }
  int HostOf(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  bool IsLocal(int rank) const { return HostOf(rank) == own_; }
  const std::vector<int>& RanksOf(int host) const { return ranks_[static_cast<size_t>(host)]; }
  const std::vector<int>& own_ranks() const { return RanksOf(own_); }
  int LocalIndex(int rank) const { return index_[static_cast<size_t>(rank)]; }
  int own_index() const { return own_index_; }
  // The other hosts, beginning after this one, so that not all send to the same host first;
  // `index`: from 0.
  int OtherHost(int host, int index) const { return (host + 1 + index) % hosts(); }
  std::vector<int> OtherHosts() const;
  // The rank of another host that speaks for it to a rank: the one with the rank's local index,
  // modulo the number of ranks there.
  int SpeakerOf(int host, int rank) const {
    const std::vector<int>& there = RanksOf(host);
    return there[static_cast<size_t>(LocalIndex(rank)) % there.size()];
  }
  bool Speaks(int from, int to) const {
    return HostOf(from) != HostOf(to) && SpeakerOf(HostOf(from), to) == from;
  }
  // Of every other host, the rank that speaks for it to this one. Targets(): the ranks that this
  // one speaks to.
  std::vector<int> Sources() const;
  std::vector<int> Targets() const;

 private:
  void Add(int host);

  std::vector<int> host_of_;
  std::vector<int> index_;
  std::vector<std::vector<int>> ranks_;
  int own_ = 0;
  int own_index_ = 0;
};

}  // namespace collops::ucx
