#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/pairs/frames.h"
#include "collops/comm/pairs/pair_wire.h"

namespace collops::ucx {

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

}  // namespace collops::ucx
