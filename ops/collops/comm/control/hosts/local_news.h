#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/control/bootstrap/group.h"
#include "collops/comm/control/hosts/bridge.h"
#include "collops/comm/control/hosts/news.h"

namespace collops::control {

// Sends the state of this host's ranks to the other hosts: reads their part of the board, and sends
// to each host what it does not have yet, so that no host sees an effect before its cause. Stores
// two heads per rank, which is enough: a rank advances only after all ranks have its head. Once the
// group has failed, it also sends what it knows of ranks of third hosts: the failure and the heads
// of its step, which may have caused what the ranks of this host do next, and which may not have
// arrived there yet: connections to different hosts have no order among them. Where a HeadCarrier
// takes the agreement, nobody waits for the heads and ends of steps that go well: they are sent
// only if they stay as they are for a while, which explains a call that does not end. Owned by a
// Watcher; not thread-safe; waits for no one.
class LocalNews {
 public:
  // `ranks`: the ranks of this host. `group` must outlive this object.
  LocalNews(const Group* group, std::vector<int> ranks, int rank_size);

  // Reads the board. `all`: a rank has rung, so that what is new is wanted now.
  void Look(bool all = true);
  // Sends what `host` does not have yet, as far as there is room. True if nothing is left to send.
  bool TellTo(int host, Bridge* bridge);
  // Whether the process of a rank of this host was seen to have ended.
  bool HasEnded(int rank) const;

 private:
  // A value that was read, and when for the first time.
  struct Fresh {
    uint64_t value = 0;
    int64_t since_ms = 0;
  };
  // A rank's state as last read; the reading order is the reverse of the sending order.
  struct Seen {
    uint64_t heads[2] = {};  // words, by parity
    Frame frames[2];         // of those heads
    uint64_t finished = 0;
    bool failed = false;
    uint64_t failed_step = 0;
    bool left = false;
    bool ended = false;
    bool noted = false;                // it is in news_of_
    std::vector<std::byte> shared[2];  // as last sent, by parity; own ranks
    Fresh fresh_heads[2];              // what is on the board, and not yet to be sent
    Fresh fresh_finished;
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
    std::vector<Told> told;  // as news_of_
  };

  int HostOf(int rank) const { return group_->peers[static_cast<size_t>(rank)].host; }
  Seen& SeenOf(int rank) { return seen_[static_cast<size_t>(rank)]; }
  const Seen& SeenOf(int rank) const { return seen_[static_cast<size_t>(rank)]; }
  // There is news of this rank.
  void Note(int rank);
  void LookAtFailure();
  void LookAtFinished(int rank);
  void LookAtHead(int rank, int parity);
  // Whether a head is to be sent now.
  bool IsWanted(uint64_t word, Seen* seen, Fresh* fresh) const;
  bool HasStayed(uint64_t value, Fresh* fresh) const;
  // The contents of a head; false if its rank has gone on meanwhile.
  bool ReadHead(int rank, uint64_t word, News* news);
  // The heads of the failed step, of ranks of other hosts.
  void LookAtHeadsOf(uint64_t failed_step);
  // Each sends one kind of news of the rank; false if there is no room.
  bool TellHeads(int rank, Told* told, int host, Bridge* bridge) const;
  bool TellFinished(int rank, Told* told, int host, Bridge* bridge) const;
  bool TellFailure(int rank, Told* told, int host, Bridge* bridge) const;
  bool TellLeft(int rank, Told* told, int host, Bridge* bridge) const;
  bool TellEnded(int rank, Told* told, int host, Bridge* bridge) const;
  // Why a rank failed or left.
  News ReasonOf(NewsKind kind, int rank) const;

  const Group* group_;
  Board board_;
  std::vector<int> ranks_;
  std::vector<int> news_of_;  // the ranks of whom there is news: ranks_, then those of other hosts
  int rank_size_;
  std::vector<Seen> seen_;  // by rank; of ranks of other hosts, only what is sent of them
  std::vector<Listener> listeners_;
  std::vector<int64_t> agreement_;  // of the head that is read
  bool all_ = true;
  int64_t now_ms_ = 0;
};

}  // namespace collops::control
