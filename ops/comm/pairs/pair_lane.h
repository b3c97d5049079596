#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/pairs/pair_context.h"
#include "comm/pairs/pair_inbox.h"
#include "comm/pairs/pair_outbox.h"
#include "comm/pairs/pair_wire.h"
#include "comm/pairs/transfer.h"
#include "comm/pairs/transfer_table.h"

namespace collops {

// Sends and receives of one rank, apart from the calls of its group: only the two ranks that a
// transfer names take part. Each is a state machine that Poll() moves; nothing here waits. A send
// is done when its receiver has taken or refused it. Owned by one communicator rank, which lets one
// thread at a time in, and which goes on calling Poll() while a transfer is under way.
//
// A refusal ends one transfer on each side. Everything else that goes wrong (a mismatch, a lost or
// lying peer, a failure of the group) ends the lane: every transfer under way is done with
// failure(). What the lane itself has found, it cannot tell the group: found_failure() then holds,
// and the owner publishes failure() before any rank's caller gets its memory back.
class PairLane {
 public:
  PairLane(int rank, int rank_size, PairWire* wire, PairGroup* group);
  PairLane(const PairLane&) = delete;
  PairLane& operator=(const PairLane&) = delete;

  // Peer and tag are right: the caller has checked them. On a lane that has ended, the transfer is
  // done at once.
  TransferHandle Post(const Transfer& transfer);
  // Takes part in a transfer that failed its own check, so that the peer hears why; this rank is
  // through with it. A receive from any source has no peer that could be told.
  void Refuse(const Transfer& transfer, const Status& why);
  // Moves all that can move; whether anything did.
  bool Poll();
  // Whether Poll() has anything to do. From any thread.
  bool HasWork() const { return has_work_.load(std::memory_order_relaxed); }
  // Verdicts found no room: their senders wait for them, whatever this rank still wants.
  bool OwesVerdicts() const { return owes_verdicts_.load(std::memory_order_relaxed); }

  bool Done(TransferHandle handle) const;
  // The outcome of a transfer that is done, once; `source`, of a receive: whose message it was.
  Status Collect(TransferHandle handle, int* source = nullptr);

  // A rank has left (Close()), or ended without a word. What still waits for it ends, after one
  // more look for what it sent before; `why` names it. A receive from any source ends when one
  // rank has ended or when all have left. May be told again.
  enum class Departure { kLeft, kEnded };
  void Lose(int peer, Departure departure, const Status& why);
  // Whether a transfer under way needs `peer`.
  bool WaitsFor(int peer) const;

  const Status& failure() const { return context_.failure; }
  bool found_failure() const { return found_failure_; }
  // Ends every transfer under way with `why`: Close(), interrupt, time-out.
  void End(const Status& why);

  // What is under way and what holds it up, for the text of a time-out.
  std::string Describe();

 private:
  struct Gone {
    bool gone = false;
    Departure departure = Departure::kLeft;
    Status why;
  };

  bool Move();
  void FailLost();
  const Status* LossOf(const OpenTransfer& open) const;
  void FinishAll();
  void UpdateWork();

  PairContext context_;
  PairOutbox outbox_;
  PairInbox inbox_;
  std::vector<Gone> gone_;
  int num_gone_ = 0;
  bool found_failure_ = false;
  std::atomic<bool> has_work_{false};
  std::atomic<bool> owes_verdicts_{false};
};

}  // namespace collops
