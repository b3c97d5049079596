#pragma once

#include <cstdint>

#include "collops/comm/pairs/pair_context.h"
#include "collops/comm/pairs/pair_inbox.h"
#include "collops/comm/pairs/pair_outbox.h"

namespace collops {

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

}  // namespace collops
