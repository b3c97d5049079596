#pragma once

#include <cstdint>
#include <vector>

#include "comm/control/bootstrap/group.h"
#include "comm/control/bridge.h"
#include "comm/control/news.h"

namespace collops::control {

// Sends the state of this host's ranks to the other hosts: reads their part of the board, and sends
// to each host what it does not have yet, so that no host sees an effect before its cause. Stores
// two heads per rank, which is enough: a rank advances only after all ranks have its head. Owned by
// a Watcher; not thread-safe; waits for no one.
class LocalNews {
 public:
  // `ranks`: the ranks of this host. `group` must outlive this object.
  LocalNews(const Group* group, std::vector<int> ranks, int rank_size);

  // Reads the board.
  void Look();
  // Sends what `host` does not have yet, as far as there is room. True if nothing is left to send.
  bool TellTo(int host, Bridge* bridge);
  // Whether the process of a rank of this host was seen to have ended.
  bool HasEnded(int rank) const;

 private:
  // A rank's state as last read; the reading order is the reverse of the sending order.
  struct Seen {
    uint64_t heads[2] = {};  // words, by parity
    Frame frames[2];         // of those heads
    uint64_t finished = 0;
    bool failed = false;
    uint64_t failed_step = 0;
    bool left = false;
    bool ended = false;
    std::vector<std::byte> shared[2];  // as last sent, by parity
  };
  // A rank's state as one host has it.
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
  // Each sends one kind of news of the rank at `index`; false if there is no room.
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
