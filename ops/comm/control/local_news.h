#pragma once

#include <cstdint>
#include <vector>

#include "comm/control/bootstrap/group.h"
#include "comm/control/bridge.h"
#include "comm/control/news.h"

namespace collops::control {

// What the ranks of this host have to tell the other hosts: looks at their part of the board, and
// says to each host what it has not been told, in an order in which nobody sees an effect before
// its cause. Holds two heads of each rank, no more: a rank gets on only when all have heard it, so
// news cannot pile up. Owned by a Watcher; not thread-safe; waits for no one.
class LocalNews {
 public:
  // `ranks`: those of this host. `group` must live as long.
  LocalNews(const Group* group, std::vector<int> ranks, int rank_size);

  // Looks at the board.
  void Look();
  // Tells a host what is new to it, as far as there is room. True when it has been told all.
  bool TellTo(int host, Bridge* bridge);
  // Of a rank of this host: its process was seen to have ended.
  bool HasEnded(int rank) const;

 private:
  // What a rank was seen to have done last. Read in the other order than it is told.
  struct Seen {
    uint64_t heads[2] = {};  // words, by parity
    Frame frames[2];         // of those heads
    uint64_t finished = 0;
    bool failed = false;
    uint64_t failed_step = 0;
    bool left = false;
    bool ended = false;
    std::vector<std::byte> shared[2];  // as last told, by parity
  };
  // The same, as one host knows it.
  struct Told {
    uint64_t heads[2] = {};
    uint64_t finished = 0;
    bool failed = false;
    uint64_t failed_step = 0;
    bool left = false;
    bool ended = false;
  };
  struct Listener {
    uint64_t joined = 0;
    std::vector<Told> told;
  };

  void LookAtHead(int rank, int parity, Seen* seen);
  // What is new of one kind, of the rank at `index`; false: there is no room.
  bool TellHeads(size_t index, Told* told, int host, Bridge* bridge) const;
  bool TellFinished(size_t index, Told* told, int host, Bridge* bridge) const;
  bool TellFailure(size_t index, Told* told, int host, Bridge* bridge) const;
  bool TellLeft(size_t index, Told* told, int host, Bridge* bridge) const;
  bool TellEnded(size_t index, Told* told, int host, Bridge* bridge) const;
  // Why a rank failed or left.
  News ReasonOf(NewsKind kind, int rank) const;

  const Group* group_;
  Board board_;
  std::vector<int> ranks_;
  int rank_size_;
  std::vector<Seen> seen_;
  std::vector<Listener> listeners_;
};

}  // namespace collops::control
