#pragma once

#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "core/status.h"

namespace collops {

// Where a wire left the body of a message; a lane only hands it back.
struct BodyPlace {
  int32_t form = 0;
  uint32_t window = 0;
  int64_t offset = 0;
  uint64_t mails = 0;
};

// The head of a message, from its sender: what it is, or why it will not come.
struct Envelope {
  uint64_t number = 0;  // of the ordered pair of ranks, from 1
  uint64_t digest = 0;
  int64_t elements = 0;
  int32_t tag = 0;
  DType dtype = DType::kUndefined;
  char type[24] = {};
  bool refusal = false;
  std::string reason;  // of the refusal
  BodyPlace place;
};

// The receiver's word on a message.
struct Verdict {
  enum Kind : uint32_t {
    kGo = 0,        // send the body now
    kDone = 1,      // the body has been taken
    kMismatch = 2,  // the two disagree: `text` says in what
    kRefused = 3,   // this rank's receive failed its own check: `text` says why
  };
  uint64_t number = 0;
  Kind kind = kGo;
  std::string text;
};

enum class WireStep {
  kNone,    // not now: nothing there, or no room
  kDone,    // something was moved
  kBroken,  // never again: fault() says why
};

enum class BodyStep {
  kTaken,   // all bytes are there
  kPart,    // ask again
  kAsk,     // the sender still has it: tell it to go, then RecvBody()
  kBroken,  // fault() says why
};

// How heads, verdicts and bodies reach another rank, which may be this rank itself. Nothing here
// waits. Between two ranks, envelopes arrive in the order in which they were posted, and so do
// verdicts. Belongs to the lane that uses it: one thread at a time.
class PairWire {
 public:
  PairWire() = default;
  PairWire(const PairWire&) = delete;
  PairWire& operator=(const PairWire&) = delete;
  virtual ~PairWire() = default;

  // As the sender. `data` stays unchanged until a verdict other than kGo has come. `envelope` has
  // the next number of the pair.
  virtual WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                                int64_t bytes) = 0;
  virtual WireStep NextVerdict(int peer, Verdict* verdict) = 0;
  // Sends on, from byte *sent, the one message that `peer` has told to go.
  virtual WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) = 0;

  // As the receiver.
  virtual WireStep NextEnvelope(int peer, Envelope* envelope) = 0;
  // Each envelope that is no refusal is followed by TakeBody() until it is not kPart, or by
  // DropBody(). *taken starts at 0.
  virtual BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                            int64_t* taken) = 0;
  virtual void DropBody(int peer, const Envelope& envelope) = 0;
  virtual WireStep PostVerdict(int peer, const Verdict& verdict) = 0;
  // Receives on, from byte *received, the one message that was told to go.
  virtual WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) = 0;

  // Why a step was kBroken; names the peer.
  virtual Status fault() const = 0;
};

// What a lane asks of the communicator that owns it. Nothing here waits.
class PairGroup {
 public:
  PairGroup() = default;
  PairGroup(const PairGroup&) = delete;
  PairGroup& operator=(const PairGroup&) = delete;
  virtual ~PairGroup() = default;

  // Whether any rank has ended the group; one load.
  virtual bool Failed() const = 0;
  // Why, once Failed() holds.
  virtual Status Failure() const = 0;
  // For messages: "rank 3 (pid 4711)".
  virtual std::string NameRank(int rank) const = 0;
};

}  // namespace collops
