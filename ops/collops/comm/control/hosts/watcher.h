#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collops/comm/control/board.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/group.h"

namespace collops::control {

// Carries frames between the boards of the hosts of one group, over TCP or, in a test, a queue.
// Hosts are numbered from 0. Frames from one host to another arrive whole and in order; those of
// different hosts have no order among them. If a connection breaks, the latest frames may be lost
// and no later frame arrives. Owned by a Watcher; only its thread calls the bridge. Nothing here
// waits, except the destructor: a moment, until the other hosts have what was sent.
class Bridge {
 public:
  virtual ~Bridge() = default;

  // False if there is no room: the frame was not sent.
  virtual bool Tell(int host, const Frame& frame) = 0;
  // The next frame that has arrived, and its host; false if there is none.
  virtual bool Take(int* host, Frame* frame) = 0;

  // The connection is broken and will not be made again.
  virtual bool Lost(int host) const = 0;
  // Why, in words for the user; empty if nothing is known.
  virtual std::string WhyLost(int) const { return ""; }

  // The descriptors to poll: ready if a frame has arrived, or if there is room again.
  virtual void AddPolled(std::vector<pollfd>* polled) const = 0;
};

enum class StatusKind : uint32_t {
  kHeartbeat = 1,  // the watcher is alive
  kHead = 2,       // a rank has begun a step whose head is on the board
  kFinished = 3,   // a rank has finished a step
  kFailed = 4,     // a rank has failed
  kLeft = 5,       // a rank has closed the communicator
  kEnded = 6,      // a rank's process has ended
  kPair = 7,       // a rank has marked one of the receiving host's ranks
};

// A piece of state of a host's ranks, sent to the other hosts. It is state, not an event: receiving
// it twice changes nothing.
struct StatusUpdate {
  StatusKind kind = StatusKind::kHeartbeat;
  int32_t rank = 0;
  // kHead: the word of the head; kLeft: Member::left_after; kPair: the rank that is marked; else a
  // step number.
  uint64_t step = 0;
  uint64_t digest = 0;  // kLeft: Member::left
  uint64_t balance = 0;
  int32_t code = 0;       // kPair: the mark
  std::string text = {};  // why the rank refused, failed or left
  // The rank's agreement and its shared bytes; null: unchanged since its last step of this parity.
  const std::byte* agreement = nullptr;
  const std::byte* shared = nullptr;
};

Frame Encode(const StatusUpdate& update, int rank_size);
// `update` points into `frame`, which must outlive it. False if Encode() did not make the frame.
bool Decode(const Frame& frame, int rank_size, StatusUpdate* update);

// Sends the state of this host's ranks to the other hosts: reads their part of the board, and sends
// to each host what it does not have yet, so that no host sees an effect before its cause. Stores
// two heads per rank, which is enough: a rank advances only after all ranks have its head. Once the
// group has failed, it also sends what it knows of ranks of third hosts: the failure and the heads
// of its step, which may have caused what the ranks of this host do next, and which may not have
// arrived there yet: connections to different hosts have no order among them. Where a HeadCarrier
// takes the agreement, nobody waits for the heads and ends of steps that go well: they are sent
// only if they stay as they are for a while, which explains a call that does not end. Owned by a
// Watcher; not thread-safe; waits for no one.
class StatusSender {
 public:
  // `ranks`: the ranks of this host. `group` must outlive this object.
  StatusSender(const Group* group, std::vector<int> ranks, int rank_size);

  // Reads the board. `all`: a rank has rung, so that what is new is wanted now.
  void Look(bool all = true);
  // Sends what `host` does not have yet, as far as there is room. True if nothing is left to send.
  bool SendTo(int host, Bridge* bridge);
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
    uint32_t pair_marks = 0;
    bool is_reported = false;          // it is in reported_
    std::vector<std::byte> shared[2];  // as last sent, by parity; own ranks
    Fresh fresh_heads[2];              // what is on the board, and not yet to be sent
    Fresh fresh_finished;
  };
  // A rank's state as one host has it.
  struct Sent {
    uint64_t heads[2] = {};
    uint64_t states[static_cast<size_t>(StatusKind::kPair) + 1] = {};  // by kind: as StateOf()
  };

  int HostOf(int rank) const { return group_->peers[static_cast<size_t>(rank)].host; }
  Seen& SeenOf(int rank) { return seen_[static_cast<size_t>(rank)]; }
  const Seen& SeenOf(int rank) const { return seen_[static_cast<size_t>(rank)]; }
  // There are updates of this rank.
  void Report(int rank);
  void LookAtFailure();
  void LookAtFinished(int rank);
  void LookAtHead(int rank, int parity);
  // Whether a head is to be sent now.
  bool IsWanted(uint64_t word, Seen* seen, Fresh* fresh) const;
  bool HasStayed(uint64_t value, Fresh* fresh) const;
  // The contents of a head; false if its rank has gone on meanwhile.
  bool ReadHead(int rank, uint64_t word, StatusUpdate* update);
  // The heads of the failed step, of ranks of other hosts.
  void LookAtHeadsOf(uint64_t failed_step);
  // A number that changes when there is something to send of a kind but kHead; 0: nothing yet.
  uint64_t StateOf(StatusKind kind, int rank) const;
  // False if there is no room.
  bool SendHeads(int rank, Sent* sent, int host, Bridge* bridge) const;
  bool SendState(StatusKind kind, int rank, Sent* sent, int host, Bridge* bridge) const;
  bool SendPairs(int rank, Sent* sent, int host, Bridge* bridge) const;

  const Group* group_;
  Board board_;
  std::vector<int> ranks_;
  std::vector<int>
      reported_;  // the ranks of whom there are updates: ranks_, then those of other hosts
  int rank_size_;
  std::vector<Seen> seen_;  // by rank; of ranks of other hosts, only what is sent of them
  std::vector<std::vector<Sent>> sent_;  // by host, as reported_
  std::vector<int64_t> agreement_;       // of the head that is read
  bool all_ = true;
  int64_t now_ms_ = 0;
};

// Writes the state of remote ranks to this host's board, as these ranks would write it themselves,
// and rings the waiting ranks. Refuses updates with a step number that cannot be, or of a rank that
// is not on the sending host, except what may be passed on. Owned by a Watcher; not thread-safe;
// waits for no one.
class StatusReplica {
 public:
  // `group` says which ranks are remote, and on which host.
  StatusReplica(const Group& group, int rank_size);

  // False, and nothing is written, if the update from `host` cannot be true.
  bool Apply(int host, const StatusUpdate& update);
  // No more updates of `host` will arrive, and why: those of its ranks that have not left are lost.
  void Lose(int host, const std::string& why);
  // Whether the group has failed in that step or an earlier one.
  bool GroupFailed(uint64_t step) const { return ends_.front().GroupFailed(step); }
  // The watcher of `host`, which may be this host, is alive.
  void SetAlive(int host);

 private:
  const Board& board() const { return ends_.front().board(); }
  Endpoint& End(int rank) { return ends_[static_cast<size_t>(rank)]; }
  const std::vector<int>& RanksOf(int host) const { return ranks_of_[static_cast<size_t>(host)]; }
  bool IsOf(int rank, int host) const;
  // Whether `host` may send the update: of its own ranks, or passed on of a third host's.
  bool MaySend(int host, const StatusUpdate& update) const;
  bool CanBe(uint64_t step) const;
  bool ApplyHead(const StatusUpdate& update);
  void ApplyFinished(const StatusUpdate& update);
  void SetEnded(int rank, uint32_t how);

  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_of_;  // by host
  int own_host_;
  std::vector<Endpoint> ends_;  // one per rank; those of this host's ranks are only read
};

// Copies the state of this host's ranks to the boards of the other hosts, and theirs to this board:
// a thread in the process of one rank per host. It runs while its rank computes, and calls wait on
// the board, never on a socket. It sleeps until a rank of this host rings, the bridge is ready, or
// kMostSleepMs have passed. Created at first contact; ends with its rank's communicator, after it
// has sent all earlier state. One thread uses this class.
class Watcher {
 public:
  // `group`: this host's ranks and board, and a descriptor of the doorbell that the watcher owns.
  Watcher(Group group, int rank_size, std::unique_ptr<Bridge> bridge, double flush_s = kFlushS);
  // Waits at most `flush_s` until the ranks of this host have finished their last step and all
  // state has been sent.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  static constexpr int kMostSleepMs = 20;
  static constexpr int64_t kHeartbeatMs = 100;
  static constexpr double kFlushS = 1.0;

 private:
  void Run();
  void Farewell();
  bool HasNothingToSend() const;
  // Takes all updates that have arrived, then sends all that is new. True if all hosts have it.
  bool Turn();
  void TakeAll();
  void Drop(int host);
  void SendHeartbeat();
  void Sleep();
  bool IsGone(int host) const { return gone_[static_cast<size_t>(host)]; }

  Group group_;
  std::unique_ptr<Bridge> bridge_;
  Board board_;
  int rank_size_;
  int num_hosts_;
  std::vector<int> own_ranks_;
  // A remote rank, whose doorbell, rung whenever all are rung, wakes this thread.
  int doorbell_rank_;
  StatusSender sender_;
  StatusReplica replica_;
  std::vector<bool> gone_;  // hosts from which no more updates are taken
  const double flush_s_;
  int64_t heartbeat_ms_ = 0;
  bool rung_ = true;  // since the last look
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace collops::control
