#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/pairs/pair_wire.h"

namespace collops::ucx {

// What two ranks of different hosts send each other of their messages.

// Bodies up to this size travel in their envelope.
constexpr int64_t kMostInlineBytes = 8192;
constexpr size_t kMostTextBytes = 1024;

enum class Form : int32_t { kInline = 0, kAsked = 1, kRefusal = 2 };

// Followed by the body, or by the reason of a refusal.
struct EnvelopeFrame {
  uint64_t number;
  uint64_t digest;
  int64_t elements;
  int32_t tag;
  int32_t dtype;
  Form form;
  uint32_t payload_bytes;
  char type[24];
};
static_assert(sizeof(EnvelopeFrame) == 64);
static_assert(kMostTextBytes <= static_cast<size_t>(kMostInlineBytes));

// A Verdict::Kind, or kCredit: only `read` counts.
constexpr uint32_t kCredit = 4;

// Sent up to the end of its text.
struct ReplyFrame {
  uint64_t number;
  uint64_t read;  // envelopes that the receiver has read
  uint32_t kind;
  uint32_t text_bytes;
  char text[kMostTextBytes];
};
constexpr size_t kReplyHeadBytes = sizeof(ReplyFrame) - kMostTextBytes;

// Streams of a pair, as in Tag. A body's sequence is its message's number, the others' is 0.
constexpr int kBodyStream = 0;
constexpr int kEnvelopeStream = 1;
constexpr int kReplyStream = 2;

// Messages to and from ranks of other hosts, over a worker that nothing else uses. A small body
// travels in its envelope; any other waits at its sender until a verdict kGo, and then goes in
// chunks straight into the receiver's memory, four of them before the first credit. A receiver
// that does not read gets at most kMostUnread envelopes; verdicts need no limit, because each
// answers a message that its reader has posted. One thread at a time; waits in Flush() only.
class RemoteWire : public PairWire {
 public:
  // `worker` is connected to these peers. It outlives the last call before Abandon().
  RemoteWire(Worker* worker, int rank, int rank_size);

  WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                        int64_t bytes) override;
  WireStep NextVerdict(int peer, Verdict* verdict) override;
  WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) override;
  WireStep NextEnvelope(int peer, Envelope* envelope) override;
  BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                    int64_t* taken) override;
  void DropBody(int peer, const Envelope& envelope) override;
  WireStep PostVerdict(int peer, const Verdict& verdict) override;
  WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) override;
  Status fault() const override { return fault_; }

  void Progress() override;
  bool HandedOver() override;
  void Flush(const Deadline& deadline) override;
  bool MayArrive(int peer) override;
  Status Loss(int peer) override;
  bool Rings(int) const override { return false; }
  int Arm() override { return worker_ == nullptr ? -1 : worker_->Arm(); }
  void Abandon() override;

  static constexpr uint64_t kMostUnread = 16;

 private:
  // State for one peer: first as its sender, then as its receiver. UCX has pointers into it.
  struct Peer {
    uint64_t posted = 0;  // envelopes to the peer
    uint64_t read = 0;    // of these, how many it has read, as it has said
    ReplyFrame reply = {};
    Request reply_request;
    bool awaits_reply = false;  // the receive is posted
    bool has_reply = false;     // a verdict has come that cannot be given out yet
    uint64_t going = 0;         // the message that got kGo; 0: none, or its body has left
    std::optional<OutgoingChunks> outgoing;

    uint64_t taken = 0;  // of the peer's envelopes
    uint64_t told = 0;   // of these, how many the peer knows to be read
    std::vector<std::byte> envelope;
    Request envelope_request;
    bool awaits_envelope = false;
    std::map<uint64_t, std::vector<std::byte>> bodies;  // of read envelopes, by number
    uint64_t receiving = 0;                             // the message that got kGo
    std::optional<IncomingChunks> incoming;

    std::optional<Deadline> known_lost;  // by then the group should have said why
    std::optional<Deadline> gone_after;  // when nothing more of one who left is expected
    std::optional<Deadline> gone_before;
  };
  // A small message that UCX still sends.
  struct Unsent {
    std::vector<std::byte> bytes;
    Request request;
  };

  Peer& peer(int rank);
  WireStep Broken(int rank, const std::string& what);
  // For an error of the worker: a peer that is lost is the group's to report.
  WireStep Failed(int rank, const Status& status);
  WireStep SendSmall(int rank, int stream, std::vector<std::byte> bytes);
  WireStep SendReply(int rank, uint32_t kind, uint64_t number, const std::string& text);
  // kDone: a reply has come; credits are used up here.
  WireStep ReadReply(int rank, Peer* to);
  WireStep AwaitEnvelope(int rank, Peer* from);
  WireStep Open(int rank, Peer* from, Envelope* envelope);

  Worker* worker_;  // null once abandoned
  int rank_;
  std::vector<std::unique_ptr<Peer>> peers_;  // those that messages went to or came from
  std::list<Unsent> unsent_;
  bool used_ = false;  // since the last flush
  Status fault_;
};

// Messages of a rank to itself: the receiver copies from the sender's memory, which stays as it is
// until the verdict. One thread at a time; waits for no one.
class SelfWire : public PairWire {
 public:
  WireStep PostEnvelope(int, const Envelope& envelope, const void* data, int64_t) override {
    posted_.push_back({envelope, data});
    return WireStep::kDone;
  }
  WireStep NextVerdict(int, Verdict* verdict) override {
    if (verdicts_.empty()) return WireStep::kNone;
    *verdict = std::move(verdicts_.front());
    verdicts_.pop_front();
    return WireStep::kDone;
  }
  WireStep NextEnvelope(int, Envelope* envelope) override {
    if (posted_.empty()) return WireStep::kNone;
    *envelope = std::move(posted_.front().envelope);
    if (!envelope->refusal) bodies_[envelope->number] = posted_.front().data;
    posted_.pop_front();
    return WireStep::kDone;
  }
  BodyStep TakeBody(int, const Envelope& envelope, void* data, int64_t bytes,
                    int64_t* taken) override {
    // memcpy takes no null address, also of 0 bytes.
    if (bytes > 0) std::memcpy(data, bodies_[envelope.number], static_cast<size_t>(bytes));
    *taken = bytes;
    bodies_.erase(envelope.number);
    return BodyStep::kTaken;
  }
  void DropBody(int, const Envelope& envelope) override { bodies_.erase(envelope.number); }
  WireStep PostVerdict(int, const Verdict& verdict) override {
    verdicts_.push_back(verdict);
    return WireStep::kDone;
  }
  // No body is asked for.
  WireStep SendBody(int, const void*, int64_t, int64_t*) override { return WireStep::kNone; }
  WireStep RecvBody(int, void*, int64_t, int64_t*) override { return WireStep::kNone; }
  Status fault() const override { return Ok(); }

 private:
  struct Posted {
    Envelope envelope;
    const void* data;
  };

  std::deque<Posted> posted_;
  std::map<uint64_t, const void*> bodies_;  // of messages that were read, by number
  std::deque<Verdict> verdicts_;
};

// The pair wires of one rank of a group on several hosts: UCX to ranks of other hosts, the shared
// memory of this host to the others, and none to itself. One thread at a time; waits in Flush()
// only. `link` outlives the last call before Abandon().
class UcxPairWire : public PairWire {
 public:
  explicit UcxPairWire(Link* link);
  ~UcxPairWire() override;

  WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                        int64_t bytes) override {
    return Pass(peer, &PairWire::PostEnvelope, envelope, data, bytes);
  }
  WireStep NextVerdict(int peer, Verdict* verdict) override {
    return Pass(peer, &PairWire::NextVerdict, verdict);
  }
  WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) override {
    return Pass(peer, &PairWire::SendBody, data, bytes, sent);
  }
  WireStep NextEnvelope(int peer, Envelope* envelope) override {
    return Pass(peer, &PairWire::NextEnvelope, envelope);
  }
  BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                    int64_t* taken) override {
    return Pass(peer, &PairWire::TakeBody, envelope, data, bytes, taken);
  }
  void DropBody(int peer, const Envelope& envelope) override {
    route(peer).wire->DropBody(route(peer).peer, envelope);
  }
  WireStep PostVerdict(int peer, const Verdict& verdict) override {
    return Pass(peer, &PairWire::PostVerdict, verdict);
  }
  WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) override {
    return Pass(peer, &PairWire::RecvBody, data, bytes, received);
  }
  Status fault() const override { return broken_->fault(); }

  void Progress() override { remote_->Progress(); }
  bool HandedOver() override { return remote_->HandedOver(); }
  void Flush(const Deadline& deadline) override { remote_->Flush(deadline); }
  bool MayArrive(int peer) override { return route(peer).wire->MayArrive(route(peer).peer); }
  Status Loss(int peer) override { return route(peer).wire->Loss(route(peer).peer); }
  bool Rings(int peer) const override { return route(peer).wire->Rings(route(peer).peer); }
  int Arm() override { return remote_->Arm(); }
  void Abandon() override { remote_->Abandon(); }

 private:
  // The wire to a rank, and its number there.
  struct Route {
    PairWire* wire;
    int peer;
  };
  struct HostDoorbell;

  const Route& route(int peer) const { return routes_[static_cast<size_t>(peer)]; }
  // A step of the wire to a rank.
  template <typename Step, typename... Of, typename... Arguments>
  Step Pass(int peer, Step (PairWire::*step)(int, Of...), Arguments&&... arguments) {
    const Route& to = route(peer);
    const Step done = (to.wire->*step)(to.peer, arguments...);
    if (done == Step::kBroken) broken_ = to.wire;
    return done;
  }

  std::unique_ptr<PairWire> remote_;
  std::unique_ptr<PairWire> self_;
  std::unique_ptr<HostDoorbell> doorbell_;
  std::unique_ptr<PairWire> host_;  // null if this rank is alone on its host
  std::vector<Route> routes_;
  const PairWire* broken_;
};

}  // namespace collops::ucx
