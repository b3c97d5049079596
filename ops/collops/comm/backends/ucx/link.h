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

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/schedule.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/step.h"
#include "collops/comm/pairs/pair_wire.h"

namespace collops::ucx {

// What two ranks of different hosts send each other of their messages.

// Bodies up to this size travel in their envelope.
constexpr int64_t kMostInlineBytes = 8192;
constexpr size_t kMostTextBytes = 1024;

// Of a body, in MessageHead::form.
constexpr int16_t kInline = 0;
constexpr int16_t kAsked = 1;
constexpr int16_t kRefusal = 2;

// Followed by the body, or by the reason of a refusal.
struct EnvelopeFrame {
  uint64_t number;
  MessageHead head;
  uint32_t payload_bytes;
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
  int Arm() override { return worker_ == nullptr ? -1 : worker_->Arm(); }
  void Abandon() override;

  static constexpr uint64_t kMostUnread = 16;

 private:
  // State for one peer: first as its sender, then as its receiver. UCX has pointers into it.
  struct PeerState {
    uint64_t posted = 0;  // envelopes to the peer
    uint64_t read = 0;    // of these, how many it has read, as it has said
    ReplyFrame reply = {};
    Request reply_request;
    bool awaits_reply = false;  // the receive is posted
    bool has_reply = false;     // a verdict has come that cannot be given out yet
    uint64_t going = 0;         // the message that got kGo; 0: none, or its body has left
    std::optional<OutgoingChunks> outgoing;

    uint64_t taken = 0;     // of the peer's envelopes
    uint64_t credited = 0;  // of these, how many the peer knows to be read
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

  PeerState& peer(int rank);
  WireStep Broken(int rank, const std::string& what);
  // For an error of the worker: a peer that is lost is the group's to report.
  WireStep Failed(int rank, const Status& status);
  WireStep SendSmall(int rank, int stream, std::vector<std::byte> bytes);
  WireStep SendReply(int rank, uint32_t kind, uint64_t number, const std::string& text);
  // kDone: a reply has come; credits are used up here.
  WireStep ReadReply(int rank, PeerState* to);
  WireStep AwaitEnvelope(int rank, PeerState* from);
  WireStep Open(int rank, PeerState* from, Envelope* envelope);

  Worker* worker_;  // null once abandoned
  int rank_;
  std::vector<std::unique_ptr<PeerState>> peers_;  // those that messages went to or came from
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

// Carries the heads of hosts over UCX: one small message to each rank that gets them from this one,
// and with it what a collective has attached. The receives are posted ahead, into memory of this
// object: no output is touched before all ranks agree, and what was sent for a refused step is
// dropped with its head. Owned by its Link; one thread at a time.
class Heads : public control::HeadCarrier {
 public:
  // `worker` outlives this object.
  Heads(Worker* worker, const HostMap& hosts, int rank);
  Heads(const Heads&) = delete;
  Heads& operator=(const Heads&) = delete;

  // Before the head of a step is sent: `data`, which stays as it is until the step ends, goes with
  // it; at most kMostHeadBytes, to a rank that this one speaks to. Clear() takes back what was not
  // sent, as the step has ended before.
  void Attach(int to, const void* data, int64_t bytes);
  void Clear();
  // After all ranks have agreed: copies what came with the head. ERROR_RANK_MISMATCH if that are
  // not so many bytes.
  Status CopyTo(void* memory, int from, int64_t bytes) const;

  // Memory for so many ranks that speak to this one, and that it speaks to.
  static int64_t Bytes(int64_t sources, int64_t targets) {
    return sources * int64_t{sizeof(Source)} + targets * int64_t{sizeof(Target)};
  }

  size_t num_sources() const override { return sources_.size(); }
  int source(size_t index) const override { return sources_[index].rank; }
  Status Send(const control::HostHead& head) override;
  bool Sent() override;
  void Progress() override { worker_->Progress(); }
  bool Take(size_t index, control::HostHead* head) override;
  Status LossOf(size_t index) const override;
  void Sleep(const control::WakeCondition& wake_condition) override {
    worker_->Sleep(wake_condition);
  }

 private:
  // Memory of UCX while a request is pending, so that it does not move.
  struct Message {
    control::HostHead head;
    std::byte attached[kMostHeadBytes];
  };
  // With its request.
  struct Posted {
    Message message;
    Request request;
  };
  // The receive of the next head is posted while the attachment of the last one is read.
  struct Source {
    explicit Source(int from) : rank(from) {}
    int rank;
    Posted receives[2];
    int next = 0;
    Status posted;  // of receives[next]
  };
  struct Target {
    explicit Target(int to) : rank(to) {}
    int rank;
    Posted sent;
    const void* data = nullptr;
    size_t bytes = 0;  // of data
  };
  void Post(Source* source);
  static uint64_t TagOf(int source);

  Worker* worker_;
  int rank_;
  std::deque<Source> sources_;
  std::deque<Target> targets_;
};

// What a rank moves bytes with, once the ranks are connected: UCX to the ranks of other hosts, and
// a communicator of backend shm among the ranks of its own host.
struct Link {
  control::Control* control = nullptr;
  HostMap hosts;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<Heads> heads;
  // A worker is for one thread at a time. Messages between two ranks have their own, because a
  // thread may wait for them while another one is in a group call: neither waits for the other, or
  // takes what the other sleeps for.
  std::unique_ptr<Worker> pair_worker;
  // Its ranks are local indices; null if this rank is alone.
  std::shared_ptr<shm::ShmCommunicator> host;
};

// Exchanges UCX addresses over Control and connects to the ranks of other hosts with which this one
// exchanges heads, then creates the communicator of this host. A connection to another rank is made
// by the first message to it. Every rank of the group calls it, inside a call.
Status ConnectLink(const std::shared_ptr<control::Control>& control, std::unique_ptr<Link>* link);

// The pair wires of one rank: UCX to ranks of other hosts, the shared memory of this host to the
// others, and none to itself. One thread at a time; waits in Flush() only. `link` outlives the last
// call before Abandon().
class MessageWires {
 public:
  explicit MessageWires(Link* link);

  const PairWires& wires() const { return wires_; }

 private:
  RemoteWire remote_;
  SelfWire self_;
  std::unique_ptr<PairWire> host_;  // null if this rank is alone on its host
  PairWires wires_;
};

}  // namespace collops::ucx
