#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/control/endpoint.h"
#include "collops/comm/pairs/pair_wire.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/core/fence.h"
#include "collops/core/status.h"

namespace collops {

// Names a posted transfer until its outcome has been collected.
struct TransferHandle {
  uint32_t index = UINT32_MAX;
  uint32_t generation = 0;
};

// A transfer that a lane knows: under way, or done and not yet collected. A refusal has no handle;
// it is removed once it has been matched.
struct OpenTransfer {
  Transfer transfer;
  Status refusal;
  Status outcome;
  uint64_t number = 0;  // of the message, once it has one
  int64_t moved = 0;    // bytes
  int source = -1;      // of a receive, once it is matched
  bool used = false;
  bool done = false;
  uint32_t generation = 0;

  bool under_way() const { return used && !done; }
  bool refuses() const { return !refusal.ok(); }
};

// The transfers of one lane; entries are reused. Not thread-safe; waits for no one.
class TransferTable {
 public:
  int Add(const Transfer& transfer);
  int AddRefusal(const Transfer& transfer, const Status& why);
  void Finish(int index);
  void Finish(int index, Status outcome);
  void Free(int index);

  OpenTransfer& operator[](int index) { return *entries_[static_cast<size_t>(index)]; }
  const OpenTransfer& operator[](int index) const { return *entries_[static_cast<size_t>(index)]; }
  int size() const { return static_cast<int>(entries_.size()); }
  // Transfers that are not done, including refusals.
  int under_way() const { return under_way_; }

  TransferHandle HandleOf(int index) const;
  // The index of a handle's transfer, -1 if it was collected before.
  int Find(TransferHandle handle) const;

 private:
  std::vector<std::unique_ptr<OpenTransfer>> entries_;
  std::vector<int> free_;
  int under_way_ = 0;
};

// State that inbox and outbox of a lane share. Owned by the lane; one thread at a time.
struct PairContext {
  PairWire* wire;
  control::Endpoint* endpoint;  // of the group
  TransferTable table;
  Status failure;  // not ok: the lane has ended with this error

  int rank() const { return endpoint->rank(); }
  int rank_size() const { return endpoint->size(); }
  bool GroupHasFailed() const { return endpoint->GroupFailed(control::kAnyStep); }
  void Fail(Status why) {
    if (failure.ok()) failure = std::move(why);
  }
  // Whether the group has failed, after the last read of a sender's memory: a sender that has given
  // up publishes that before it writes its memory again.
  bool FailedMeanwhile() const {
    Fence(std::memory_order_acquire);
    return GroupHasFailed();
  }
  // For what a peer wrote that no correct rank writes.
  void FailBroken(int peer, const std::string& what) {
    Fail(Error(ERROR_PEER_LOST, "Send and Recv: ", endpoint->Who(peer), " sent ", what));
  }
};

// The texts of errors between two ranks; both ranks get the same text.

// "Send" or "Recv"; "send" or "recv" at the plain level, whatever the method is.
const char* WordOf(const Transfer& transfer);
// The call that asks for it: the plain level's method, or "Send" or "Recv".
const char* CallOf(const Transfer& transfer);

// The first field in which sender and receiver of a message differ: both ranks, both values.
std::string DescribeMismatch(const control::Endpoint& group, int sender, int receiver,
                             const Envelope& envelope, const Transfer& receive);

// `refuser` takes part in the message with a refusal; for the other rank, whose `transfer` it is.
// The tag is the message's.
Status RefusedBy(const control::Endpoint& group, const Transfer& transfer, int refuser,
                 uint64_t number, int32_t tag, const std::string& reason);

// Describes a transfer that has not ended, for the message of a time-out.
std::string DescribeOpen(const control::Endpoint& group, const OpenTransfer& open);

// The receiving half of a lane: matches heads of messages with posted receives and takes the
// bodies. Per source and tag, messages in the order of their numbers match receives in the order of
// posting; a receive from any source takes the head that was read first. A head is read only while
// a receive could match it; bodies are never buffered here. Owned by the lane, one thread at a
// time; waits for no one.
class PairInbox {
 public:
  explicit PairInbox(PairContext* context)
      : context_(context), peers_(static_cast<size_t>(context->rank_size())) {}

  // A receive, or the refusal of one, which names its source.
  void Add(int index);
  // A receive of which TakeBody() has returned kPart; its entry names source and number.
  void AddTaking(int index, Envelope&& envelope);
  // A head that was read from the wire.
  void OnHead(int rank, Envelope&& envelope);
  // Posts a verdict, now or when there is room for it.
  void Answer(int rank, Verdict&& verdict);
  // Whether heads of `rank` have been read that no receive matches.
  bool HasHeads(int rank) const { return !peers_[static_cast<size_t>(rank)].heads.empty(); }
  // Moves whatever can move; true if anything did.
  bool Poll();
  // Whether verdicts still wait for room.
  bool has_backlog() const { return backlog_ > 0; }
  // Drops the refusals that no message of `peer` will match.
  void ForgetRefusals(int peer);
  // Reads the heads that `peer` has posted and describes them, for the message of a time-out.
  std::string DescribeHeads(int peer);

 private:
  struct Head {
    uint64_t order;  // of reading, over all source ranks
    Envelope envelope;
  };
  struct Matched {
    int index;
    Envelope envelope;
  };
  struct Peer {
    std::vector<Head> heads;        // not matched, by number
    std::vector<Matched> taking;    // bodies that TakeBody() takes piece by piece
    std::vector<Matched> waiting;   // bodies still at their sender, by order of matching
    bool going = false;             // the first of `waiting` got kGo
    std::vector<Verdict> verdicts;  // verdicts that found no room
    int wanted = 0;                 // posted receives that name this source rank
    bool busy = false;

    bool idle() const {
      return wanted == 0 && taking.empty() && waiting.empty() && verdicts.empty();
    }
  };

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  void MarkBusy(int rank);
  bool FindHead(const Transfer& transfer, int* source, size_t* head) const;
  bool PollPeer(int rank);
  bool ReadHeads(int rank);
  void Match(int index, int rank, Envelope&& envelope);
  bool Agree(int index, int rank, const Envelope& envelope);
  BodyStep Take(int index, int rank, const Envelope& envelope);
  bool TakeOn(int rank);
  bool ReceiveOn(int rank);
  void GoOn(int rank);
  void FinishTaken(int index, int rank, uint64_t number);
  bool AnswerOn(int rank);

  PairContext* context_;
  std::vector<Peer> peers_;
  std::vector<int> busy_;    // ranks whose Peer is not idle, and some idle ones
  std::vector<int> posted_;  // receives that are not matched, by order of posting
  int from_any_ = 0;         // of these, receives from any source
  int first_ = 0;            // where the next round over all source ranks begins
  uint64_t heads_read_ = 0;
  int backlog_ = 0;
};

// The sending half of a lane. Messages to one peer are posted and numbered in the order in which
// they were added; a message is over when the receiver's verdict has arrived. Owned by the lane,
// one thread at a time; waits for no one.
class PairOutbox {
 public:
  explicit PairOutbox(PairContext* context)
      : context_(context), peers_(static_cast<size_t>(context->rank_size())) {}

  // A send, or the refusal of one.
  void Add(int index);
  // Posts a message that has no entry in the table, while none to its receiver waits for room;
  // *number: the message's.
  WireStep PostDirect(const Transfer& transfer, uint64_t* number);
  // A send that PostDirect() has posted, later than all that were added before.
  void AddPosted(int index, uint64_t number);
  // A verdict that was read from the wire.
  void OnVerdict(int rank, const Verdict& verdict);
  // Moves whatever can move; true if anything did.
  bool Poll();
  // Only reads the verdicts that have arrived.
  bool ReadVerdicts();
  // Drops the refusals that `peer` will never read.
  void ForgetRefusals(int peer);

 private:
  struct Sent {
    uint64_t number;
    int index;
  };
  struct Peer {
    std::vector<int> queue;  // not posted yet
    std::vector<Sent> sent;  // posted, by number
    int going = -1;          // the transfer that got kGo
    uint64_t last_number = 0;
    bool busy = false;

    bool idle() const { return queue.empty() && sent.empty(); }
  };

  void MarkBusy(int rank);
  bool PollPeer(int rank, Peer* peer);
  bool ReadVerdictsOf(int rank, Peer* peer);
  bool Judge(int rank, Peer* peer, const Verdict& verdict);
  void Close(int rank, const Verdict& verdict, const Sent& sent);
  bool PostQueued(int rank, Peer* peer);
  bool SendOn(int rank, Peer* peer);

  PairContext* context_;
  std::vector<Peer> peers_;
  Envelope direct_;
  std::vector<int> busy_;  // ranks whose Peer is not idle, and some idle ones
};

// The transfers of one call in a lane that has no others: each goes straight to the wire, without
// an entry in the table. Most messages are over after a few looks at the wire. Whatever is not as
// usual (an answer that is no kDone, a head that the first open receive does not match, no room)
// stops it; the lane then goes on with what is open. Owned by the lane; one thread at a time; waits
// for no one.
class DirectTransfers {
 public:
  static constexpr int kMost = 16;

  DirectTransfers(PairContext* context, PairOutbox* outbox, PairInbox* inbox)
      : context_(context), outbox_(outbox), inbox_(inbox) {}

  // Posts the sends. False, and nothing has happened, if the list needs the lane. `list` must live
  // until HandOver(), or until nothing is open.
  bool Begin(const Transfer* list, int count);
  // Moves whatever can move; true if anything did.
  bool Poll();
  bool open() const { return open_ > 0; }
  // It can only be handed over.
  bool stopped() const { return stopped_; }
  // Gives every transfer of the list to the lane, and sets their handles. The caller updates what
  // the lane says of its work.
  void HandOver(TransferHandle* handles);

 private:
  enum class State : uint8_t { kNew, kUnderWay, kLeftOpen, kDone };
  // A send is under way once it has been posted; a receive, while its body is taken piece by piece.
  struct Open {
    const Transfer* transfer = nullptr;
    State state = State::kNew;
    bool behind = false;  // an earlier receive of the list has the same source
    uint64_t number = 0;
    int64_t moved = 0;
    Envelope envelope;  // while the body is taken
  };
  enum class Odd { kNothing, kHead, kVerdict, kFault };

  bool PollSend(Open* send);
  bool PollReceive(Open* receive);
  bool IsFirstOfItsSource(const Open& receive) const;
  void OnHead(Open* receive);
  void Take(Open* receive, const Envelope& envelope);
  void Close(Open* open);
  void Stop(Odd odd, int rank);
  void HandOverSend(int index, const Open& send);
  void HandOverReceive(int index, Open* receive);

  PairContext* context_;
  PairOutbox* outbox_;
  PairInbox* inbox_;
  Open list_[kMost];
  int count_ = 0;
  int open_ = 0;
  bool stopped_ = false;
  Odd odd_ = Odd::kNothing;  // what stopped it, from or to odd_rank_: head_ or verdict_
  int odd_rank_ = 0;
  Envelope head_;
  Verdict verdict_;
};

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
  PairLane(PairWire* wire, control::Endpoint* endpoint);
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
