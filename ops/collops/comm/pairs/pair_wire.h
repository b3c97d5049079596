#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/deadline.h"
#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops {

// What sender and receiver of a message must agree on, and what else its head says, as it travels.
struct MessageHead {
  uint64_t digest = 0;
  int64_t elements = 0;
  int32_t tag = 0;
  int16_t form = 0;   // how the body travels; the wire's own
  int16_t dtype = 0;  // a DType
  char type[24] = {};
};
static_assert(sizeof(MessageHead) == 48);

// Where a wire has put the body of a message; a lane only hands it back to the wire.
struct BodyPlace {
  int64_t offset = 0;
  uint64_t mails = 0;
  uint32_t window = 0;
};

// The head of a message, from its sender: its description, or the reason of a refusal.
struct Envelope {
  uint64_t number = 0;  // per ordered pair of ranks, from 1
  MessageHead head;
  bool refusal = false;
  std::string reason;  // of the refusal
  BodyPlace place;
};

// The receiver's answer to a message.
struct Verdict {
  enum Kind : uint32_t {
    kGo = 0,        // send the body now
    kDone = 1,      // the body has been taken
    kMismatch = 2,  // the two ranks disagree: `text` says in what
    kRefused = 3,   // the receive failed its own check: `text` says why
  };
  uint64_t number = 0;
  Kind kind = kGo;
  std::string text;
};

enum class WireStep {
  kNone,    // not now: nothing has arrived, or there is no room
  kDone,    // something was moved
  kBroken,  // the wire cannot be used any more: fault() says why
};

enum class BodyStep {
  kTaken,   // all bytes have been taken
  kPart,    // call again
  kAsk,     // the body is at the sender, *taken is 0: post kGo, then RecvBody()
  kBroken,  // fault() says why
};

// How heads, verdicts and bodies reach another rank, or this rank itself. Nothing here waits but
// Flush(). Between two ranks, envelopes arrive in the order of posting, and so do verdicts. Used by
// one lane: one thread at a time.
class PairWire {
 public:
  PairWire() = default;
  PairWire(const PairWire&) = delete;
  PairWire& operator=(const PairWire&) = delete;
  virtual ~PairWire() = default;

  // For the sender. `data` must not change until a verdict other than kGo has arrived. `envelope`
  // has the next number of the pair.
  virtual WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                                int64_t bytes) = 0;
  virtual WireStep NextVerdict(int peer, Verdict* verdict) = 0;
  // Sends the rest, from byte *sent on, of the one message for which `peer` has posted kGo.
  virtual WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) = 0;

  // For the receiver.
  virtual WireStep NextEnvelope(int peer, Envelope* envelope) = 0;
  // After each envelope that is no refusal, call TakeBody() until it does not return kPart, or
  // DropBody(). *taken starts at 0.
  virtual BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                            int64_t* taken) = 0;
  virtual void DropBody(int peer, const Envelope& envelope) = 0;
  virtual WireStep PostVerdict(int peer, const Verdict& verdict) = 0;
  // Receives the rest, from byte *received on, of the one message that got kGo.
  virtual WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) = 0;

  // Why a step was kBroken; names the peer.
  virtual Status fault() const = 0;

  // The functions below are for a wire whose messages take a while and ring no doorbell
  // (PairWires::remote).

  // Called at the beginning of each round of the lane.
  virtual void Progress() {}
  // Whether all envelopes and verdicts that were posted will arrive although no more calls follow.
  virtual bool HandedOver() { return true; }
  // Waits, before this rank leaves, until they have left this host; at most until the deadline.
  virtual void Flush(const Deadline& /*deadline*/) {}
  // Whether something may still arrive that `peer`, which has left or ended, sent before.
  virtual bool MayArrive(int /*peer*/) { return false; }
  // Ok, or why nothing more can arrive from `peer`. It is said a moment late, because the group may
  // know more.
  virtual Status Loss(int /*peer*/) { return Ok(); }
  // A descriptor that is readable once something arrives from peers that do not ring; -1 if
  // something has arrived already. For one sleep.
  virtual int Arm() { return -1; }
  // The lane has ended: after this nothing reads or writes the memory of a transfer.
  virtual void Abandon() {}
};

// The wires of one rank. Owned by the backend.
struct PairWires {
  // The wire to a rank, and the rank's number there.
  struct Route {
    PairWire* wire = nullptr;
    int peer = 0;
  };

  PairWires() = default;
  // One wire to all ranks.
  PairWires(PairWire* wire, int rank_size) {
    for (int rank = 0; rank < rank_size; ++rank) routes.push_back({wire, rank});
  }

  std::vector<Route> routes;   // by rank
  PairWire* remote = nullptr;  // the one wire that rings no doorbell; null: there is none
};

}  // namespace collops
