#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "collops/comm/control/endpoint.h"
#include "collops/comm/pairs/pair_wire.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/core/status.h"

namespace collops {

// A transfer in a lane. Owned by whoever posts it; until it is done it stays where it is.
struct OpenTransfer {
  Transfer transfer;
  Status refusal;  // not ok: this rank takes part with a refusal
  Status outcome;  // once it is done
  bool done = true;
  int source = -1;      // of a receive, once it is matched
  uint64_t number = 0;  // of the message, once it has one
  int64_t moved = 0;    // bytes
  OpenTransfer* previous = nullptr;
  OpenTransfer* next = nullptr;

  // The rank that it needs; kAnySource: any.
  int needed() const { return source < 0 ? transfer.peer : source; }
  bool refuses() const { return !refusal.ok(); }
};

// "Send" or "Recv"; "send" or "recv" at the plain level, whatever the method is.
const char* WordOf(const Transfer& transfer);

// Sends and receives of one rank, independent of its group calls: only the two ranks that a
// transfer names take part. Each is a state machine that Poll() advances; nothing here waits. A
// send is done when its receiver has taken or refused it. Owned by one rank of a communicator,
// which lets in one thread at a time, and calls Poll() again while a transfer is under way.
//
// Messages to one peer are posted and numbered in the order of Post(). Per source and tag, messages
// in the order of their numbers match receives in the order of posting; a receive from any source
// takes the head that was read first. A head is read only while a receive could match it; bodies
// are never buffered here.
//
// A refusal ends one transfer on each side. Every other error (a mismatch, a lost or faulty peer, a
// failure of the group) ends the lane: all transfers end with failure(). The lane cannot tell the
// group about an error that it has found: the owner publishes failure() before any caller gets its
// memory back.
class PairLane {
 public:
  // `endpoint`: of the group.
  PairLane(PairWires wires, control::Endpoint* endpoint);
  PairLane(const PairLane&) = delete;
  PairLane& operator=(const PairLane&) = delete;

  // Begins open->transfer, whose peer and tag the caller has checked. If the lane has ended, it is
  // done at once.
  void Post(OpenTransfer* open);
  // Takes part in a transfer that failed its own check, so that the peer gets the reason; it is
  // over for this rank. A receive from any source has no peer to tell.
  void Refuse(const Transfer& transfer, const Status& why);
  // Moves whatever can move; true if anything did, or the lane has ended.
  bool Poll();
  // Whether Poll() has anything to do. From any thread.
  bool HasWork() const { return has_work_.load(std::memory_order_relaxed); }
  // Whether verdicts found no room, or are not on their way yet. Their senders wait for them.
  bool OwesVerdicts() const { return owes_verdicts_.load(std::memory_order_relaxed); }

  // A rank has closed its communicator (kLeft) or its process has ended (kEnded). Transfers that
  // still need it end with `why`, after one more look for what it sent before. A receive from any
  // source ends when one rank has ended or when all have left. May be called again.
  enum class Departure { kLeft, kEnded };
  void Lose(int peer, Departure departure, const Status& why);
  // Whether a transfer under way needs `peer`.
  bool WaitsFor(int peer) const;
  // Whether what comes from `peer` rings this rank's doorbell.
  bool Rings(int peer) const { return at(peer).route.wire != remote_; }

  const Status& failure() const { return failure_; }
  // Ends every transfer with `why`: Close(), interrupt, time-out.
  void End(const Status& why);

  // The transfers under way and what holds them up, for the message of a time-out.
  std::string Describe();

 private:
  struct Head {
    uint64_t order;  // of reading, over all source ranks
    Envelope envelope;
  };
  struct Matched {
    OpenTransfer* open;
    Envelope envelope;
  };
  struct PeerQueues {
    PairWires::Route route;
    bool busy = false;  // it is in busy_

    // Of this rank as its sender.
    std::vector<OpenTransfer*> queue;  // not posted yet
    std::vector<OpenTransfer*> sent;   // posted, by number
    OpenTransfer* sending = nullptr;   // the one that got kGo
    uint64_t last_number = 0;

    // Of this rank as its receiver.
    std::vector<Head> heads;        // not matched, by number
    std::vector<Matched> taking;    // bodies that TakeBody() takes piece by piece
    std::vector<Matched> waiting;   // bodies still at their sender, by order of matching
    bool receiving = false;         // the first of `waiting` got kGo
    std::vector<Verdict> verdicts;  // verdicts that found no room
    int wanted = 0;                 // posted receives that name this source rank

    bool gone = false;
    Departure departure = Departure::kLeft;
    Status loss;

    bool idle() const {
      return queue.empty() && sent.empty() && wanted == 0 && taking.empty() && waiting.empty() &&
             verdicts.empty();
    }
  };

  PeerQueues& at(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const PeerQueues& at(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  int rank_size() const { return static_cast<int>(peers_.size()); }
  void MarkBusy(int rank) {
    if (!at(rank).busy) busy_.push_back(rank);
    at(rank).busy = true;
  }
  bool Move();
  bool PollPeer(int rank);
  void UpdateWork() {
    const bool owes =
        failure_.ok() && (backlog_ > 0 || (remote_ != nullptr && !remote_->HandedOver()));
    if (owes != OwesVerdicts()) owes_verdicts_.store(owes, std::memory_order_relaxed);
    const bool work = num_open_ > 0 || owes;
    if (work != HasWork()) has_work_.store(work, std::memory_order_relaxed);
  }

  void Begin(OpenTransfer* open);
  void Finish(OpenTransfer* open);
  void Finish(OpenTransfer* open, Status outcome);
  void FinishAll();
  void Fail(Status why);
  // For a step of the wire to `rank`: false if nothing has moved.
  bool Moved(int rank, WireStep step) {
    if (step == WireStep::kBroken) Fail(at(rank).route.wire->fault());
    return step != WireStep::kNone;
  }

  // As a sender.
  WireStep PostOne(OpenTransfer* open);
  bool PostQueued(int rank);
  bool ReadVerdicts(int rank);
  bool Judge(int rank, const Verdict& verdict);
  void Close(int rank, const Verdict& verdict, OpenTransfer* sent);
  bool SendOn(int rank);

  // As a receiver.
  void AddReceive(OpenTransfer* open);
  Head* FindHead(const Transfer& transfer, int* source);
  bool ReadHeads(int rank);
  void OnHead(int rank, Envelope* envelope);
  void Match(OpenTransfer* open, int rank, Envelope* envelope);
  bool Agree(OpenTransfer* open, int rank, const Envelope& envelope);
  BodyStep Take(OpenTransfer* open, int rank, const Envelope& envelope);
  bool TakeOn(int rank);
  bool ReceiveOn(int rank);
  void Ask(int rank, Matched&& matched);
  void GoOn(int rank);
  void FinishTaken(OpenTransfer* open, int rank);
  void Answer(int rank, Verdict&& verdict);
  bool AnswerOn(int rank);
  std::string DescribeHeads(int rank);

  void ForgetSends(int rank);
  void ForgetReceives(int rank);
  void FailLost();
  const Status* LossOf(const OpenTransfer& open) const;
  bool SomethingMayArrive(const OpenTransfer& open) const;

  PairWire* remote_;
  control::Endpoint* endpoint_;
  Status failure_;  // not ok: the lane has ended with this error
  std::vector<PeerQueues> peers_;
  std::vector<int> busy_;  // ranks whose PeerQueues is not idle, and some idle ones
  OpenTransfer* first_open_ = nullptr;
  OpenTransfer* last_open_ = nullptr;
  int num_open_ = 0;  // including refusals
  std::list<OpenTransfer> refusals_;
  std::vector<OpenTransfer*> posted_;  // receives that are not matched, by order of posting
  int from_any_ = 0;                   // of these, receives from any source
  int first_rank_ = 0;                 // where the next round over all source ranks begins
  uint64_t heads_read_ = 0;
  int backlog_ = 0;  // verdicts that wait for room
  int num_gone_ = 0;
  Envelope sent_head_;  // these are kept for their memory
  Envelope read_head_;
  Verdict verdict_;
  std::atomic<bool> has_work_{false};
  std::atomic<bool> owes_verdicts_{false};
};

}  // namespace collops
