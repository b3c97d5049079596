#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/hosts/news.h"

namespace collops::control {

// Writes the state of remote ranks to this host's board, as these ranks would write it themselves,
// and rings the waiting ranks. Refuses news with a step number that cannot be, or of a rank that is
// not on the sending host, except what may be passed on. Owned by a Watcher; not thread-safe; waits
// for no one.
class Mirror {
 public:
  // `group` says which ranks are remote, and on which host.
  Mirror(const Group& group, int rank_size);

  // False, and nothing is written, if the news of `host` cannot be true.
  bool Apply(int host, const News& news);
  // No more news of `host` will arrive, and why: those of its ranks that have not left are lost.
  void Lose(int host, const std::string& why);
  // Whether the group has failed in that step or an earlier one.
  bool GroupFailed(uint64_t step) const { return ends_.front().GroupFailed(step); }
  // The watcher of `host`, which may be this host, is alive.
  void NoteAlive(int host);

 private:
  const Board& board() const { return ends_.front().board(); }
  Endpoint& End(int rank) { return ends_[static_cast<size_t>(rank)]; }
  const std::vector<int>& RanksOf(int host) const { return ranks_of_[static_cast<size_t>(host)]; }
  bool IsOf(int rank, int host) const;
  // Whether `host` may send the news: of its own ranks, or passed on of a third host's.
  bool MaySend(int host, const News& news) const;
  bool CanBe(uint64_t step) const;
  bool ApplyHead(const News& news);
  void ApplyFinished(const News& news);
  void SetEnded(int rank, uint32_t how);

  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_of_;  // by host
  int own_host_;
  std::vector<Endpoint> ends_;  // one per rank; those of this host's ranks are only read
};

}  // namespace collops::control
