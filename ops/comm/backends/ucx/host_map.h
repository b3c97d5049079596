#pragma once

#include <vector>

#include "comm/control/bootstrap/group.h"

namespace collops::ucx {

// Which ranks run on which host, as this rank sees it. Ranks of a host are counted in their order:
// local index 0 is the first.
class HostMap {
 public:
  HostMap(const control::Group& group, int rank);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_.size()); }
  int own_host() const { return own_; }
  int HostOf(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  bool IsLocal(int rank) const { return HostOf(rank) == own_; }
  const std::vector<int>& RanksOf(int host) const { return ranks_[static_cast<size_t>(host)]; }
  const std::vector<int>& own_ranks() const { return RanksOf(own_); }
  int LocalIndex(int rank) const { return index_[static_cast<size_t>(rank)]; }
  int own_index() const { return own_index_; }
  // The other hosts, beginning after this one, so that not all send to the same host first.
  std::vector<int> OtherHosts() const;
  // Of every other host, the rank that speaks for it to this one: the one with this rank's local
  // index, modulo the number of ranks there. Targets(): the ranks that this one speaks to.
  std::vector<int> Sources() const;
  std::vector<int> Targets() const;

 private:
  std::vector<int> host_of_;
  std::vector<int> index_;
  std::vector<std::vector<int>> ranks_;
  int own_ = 0;
  int own_index_ = 0;
};

}  // namespace collops::ucx
