#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/pairs/pair_context.h"

namespace collops {

// The receiving half of a lane: matches heads of messages with posted receives and takes the
// bodies. Per source and tag, messages in the order of their numbers match receives in the order of
// posting; a receive from any source takes the head that was read first. A head is read only while
// a receive could match it; bodies are never buffered here. Owned by the lane, one thread at a
// time; waits for no one.
class PairInbox {
 public:
  explicit PairInbox(PairContext* context)
      : context_(context), peers_(static_cast<size_t>(context->rank_size)) {}

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

}  // namespace collops
