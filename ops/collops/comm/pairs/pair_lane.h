#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "collops/comm/pairs/direct_transfers.h"
#include "collops/comm/pairs/pair_context.h"
#include "collops/comm/pairs/pair_inbox.h"
#include "collops/comm/pairs/pair_outbox.h"
#include "collops/comm/pairs/pair_wire.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/pairs/transfer_table.h"

namespace collops {

// Sends and receives of one rank, independent of its group calls: only the two ranks that a
// transfer names take part. Each is a state machine that Poll() advances; nothing here waits. A
// send is done when its receiver has taken or refused it. Owned by one rank of a communicator,
// which lets in one thread at a time, and calls Poll() again while a transfer is under way.
//
// A refusal ends one transfer on each side. Every other error (a mismatch, a lost or faulty peer, a
// failure of the group) ends the lane: all transfers end with failure(). The lane cannot tell the
// group about an error that it has found: if found_failure(), the owner publishes failure() before
// any caller gets its memory back.
class PairLane {
 public:
  PairLane(int rank, int rank_size, PairWire* wire, PairGroup* group);
  PairLane(const PairLane&) = delete;
  PairLane& operator=(const PairLane&) = delete;

  // The caller has checked peer and tag. If the lane has ended, the transfer is done at once.
  TransferHandle Post(const Transfer& transfer);
  // For a list of transfers that waits for room or for peers only briefly. Begins it apart from the
  // lane's transfers, of which there must be none; false: nothing has happened, post it. Until
  // `direct` has nothing open or HandOverDirect() was called, nothing else is called.
  bool BeginDirect(const Transfer* list, int count);
  DirectTransfers& direct() { return direct_; }
  // Goes on with what is open as if it had been posted; sets the handles of all.
  void HandOverDirect(TransferHandle* handles);
  // Takes part in a transfer that failed its own check, so that the peer gets the reason; it is
  // over for this rank. A receive from any source has no peer to tell.
  void Refuse(const Transfer& transfer, const Status& why);
  // Moves whatever can move; true if anything did.
  bool Poll();
  // Whether Poll() has anything to do. From any thread.
  bool HasWork() const { return has_work_.load(std::memory_order_relaxed); }
  // Whether verdicts found no room, or are not on their way yet. Their senders wait for them.
  bool OwesVerdicts() const { return owes_verdicts_.load(std::memory_order_relaxed); }

  bool Done(TransferHandle handle) const;
  // The outcome of a transfer that is done, returned once; `source`: the sender of a received
  // message.
  Status Collect(TransferHandle handle, int* source = nullptr);

  // A rank has closed its communicator (kLeft) or its process has ended (kEnded). Transfers that
  // still need it end with `why`, after one more look for what it sent before. A receive from any
  // source ends when one rank has ended or when all have left. May be called again.
  enum class Departure { kLeft, kEnded };
  void Lose(int peer, Departure departure, const Status& why);
  // Whether a transfer under way needs `peer`.
  bool WaitsFor(int peer) const;

  const Status& failure() const { return context_.failure; }
  bool found_failure() const { return found_failure_; }
  // Ends every transfer with `why`: Close(), interrupt, time-out.
  void End(const Status& why);

  // The transfers under way and what holds them up, for the message of a time-out.
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
  bool SomethingMayArrive(const OpenTransfer& open) const;
  void FinishAll();
  void UpdateWork();

  PairContext context_;
  PairOutbox outbox_;
  PairInbox inbox_;
  DirectTransfers direct_;
  std::vector<Gone> gone_;
  int num_gone_ = 0;
  bool found_failure_ = false;
  std::atomic<bool> has_work_{false};
  std::atomic<bool> owes_verdicts_{false};
};

}  // namespace collops
