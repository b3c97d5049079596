#pragma once

#include <cstdint>
#include <vector>

#include "comm/control/endpoint.h"
#include "comm/control/news.h"

namespace collops::control {

// The ranks of other hosts on this host's board: writes what they tell as they would write it
// themselves, and rings who waits for it. Trusts no number: one that cannot be yet, or of a rank
// that the host has not, is told apart. Owned by a Watcher; not thread-safe; waits for no one.
class Mirror {
 public:
  // `group` says which ranks are remote, and of which host.
  Mirror(const Group& group, int rank_size);

  // False if `host` tells what cannot be; nothing is written then.
  bool Apply(int host, const News& news);
  // All that `host` will ever tell has come: its ranks that have not left are lost.
  void Lose(int host);
  // Whether the group has ended in that step or before.
  bool GroupFailed(uint64_t step) const { return ends_.front().GroupFailed(step); }
  // The watcher of that host, which may be this one, is alive.
  void Hear(int host);

 private:
  const Board& board() const { return ends_.front().board(); }
  Endpoint& End(int rank) { return ends_[static_cast<size_t>(rank)]; }
  bool IsOf(int rank, int host) const;
  bool CanBe(uint64_t step) const;
  bool ApplyHead(const News& news);
  void ApplyFinished(const News& news);
  void SetEnded(int rank, uint32_t how);

  std::vector<int> host_of_;
  int own_host_;
  std::vector<Endpoint> ends_;  // of every rank; this host's own are only looked at
};

}  // namespace collops::control
