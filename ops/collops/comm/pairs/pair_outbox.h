#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/pairs/pair_context.h"

namespace collops {

// The sending half of a lane. Messages to one peer are posted and numbered in the order in which
// they were added; a message is over when the receiver's verdict has arrived. Owned by the lane,
// one thread at a time; waits for no one.
class PairOutbox {
 public:
  explicit PairOutbox(PairContext* context)
      : context_(context), peers_(static_cast<size_t>(context->rank_size)) {}

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

}  // namespace collops
