// Messages between two ranks: the wire to ranks of other hosts, and the choice of the wire to a
// rank.

#include <algorithm>
#include <cstring>
#include <utility>

#include "collops/comm/backends/ucx/link.h"

namespace collops::ucx {
namespace {

// A loss that UCX has seen is the group's to explain for so long.
constexpr double kLossExplainS = 2.0;
// What a rank has sent before it left comes over another connection than the news that it left:
// after its end, and at the latest after so long, nothing more is expected.
constexpr double kLastNewsS = 0.05;
constexpr double kNoNewsS = 0.25;

// Four chunks go before the first credit: the receiver has posted them once it says kGo, or does so
// a moment later.
Chunking CutBody(int64_t bytes) {
  return {bytes, kStreamChunkBytes, kStreamSlots};
}

// What was moved of a body, less than all of it until it is done.
int64_t Moved(int64_t chunks, int64_t bytes) {
  return std::min(chunks * kStreamChunkBytes, bytes - 1);
}

}  // namespace

RemoteWire::RemoteWire(Worker* worker, int rank, int rank_size)
    : worker_(worker), rank_(rank), peers_(static_cast<size_t>(rank_size)) {}

RemoteWire::PeerState& RemoteWire::peer(int rank) {
  std::unique_ptr<PeerState>& state = peers_[static_cast<size_t>(rank)];
  if (state == nullptr) state = std::make_unique<PeerState>();
  return *state;
}

WireStep RemoteWire::Broken(int rank, const std::string& what) {
  fault_ = Error(ERROR_PEER_LOST, "Send and Recv: rank ", rank, " sent invalid data: ", what);
  return WireStep::kBroken;
}

WireStep RemoteWire::Failed(int rank, const Status& status) {
  if (worker_->IsLost(rank)) return WireStep::kNone;
  fault_ = Error(status.code(), "Send and Recv with rank ", rank, ": ", status.message());
  return WireStep::kBroken;
}

void RemoteWire::Progress() {
  if (worker_ != nullptr) worker_->Progress();
}

bool RemoteWire::HandedOver() {
  if (worker_ == nullptr) return true;
  unsent_.remove_if([this](Unsent& small) { return worker_->Test(&small.request); });
  return unsent_.empty();
}

void RemoteWire::Flush(const Deadline& deadline) {
  if (worker_ == nullptr || !used_) return;
  used_ = false;
  static_cast<void>(worker_->Flush(deadline));
}

void RemoteWire::Abandon() {
  unsent_.clear();
  peers_.clear();
  worker_ = nullptr;
}

bool RemoteWire::MayArrive(int rank) {
  if (worker_ == nullptr) return false;
  PeerState& from = peer(rank);
  if (!from.gone_after) {
    from.gone_after = Deadline::After(kLastNewsS);
    from.gone_before = Deadline::After(kNoNewsS);
  }
  if (from.gone_before->Passed()) return false;
  return !worker_->IsLost(rank) || !from.gone_after->Passed();
}

Status RemoteWire::Loss(int rank) {
  if (worker_ == nullptr || !worker_->IsLost(rank)) return Ok();
  PeerState& lost = peer(rank);
  if (!lost.known_lost) lost.known_lost = Deadline::After(kLossExplainS);
  return lost.known_lost->Passed() ? worker_->LossOf(rank) : Ok();
}

// UCX reads the bytes until the request is done, so the message is kept until then.
WireStep RemoteWire::SendSmall(int rank, int stream, std::vector<std::byte> bytes) {
  used_ = true;
  unsent_.emplace_back();
  Unsent& small = unsent_.back();
  small.bytes = std::move(bytes);
  const uint64_t tag = Tag{0, rank_, stream}.Of(TagKind::kData);
  const Status sent =
      worker_->Send(rank, tag, small.bytes.data(), small.bytes.size(), &small.request);
  if (!small.request.pending()) unsent_.pop_back();
  // To a peer that is lost it is as good as sent.
  const bool lost = !sent.ok() && Failed(rank, sent) == WireStep::kNone;
  return sent.ok() || lost ? WireStep::kDone : WireStep::kBroken;
}

WireStep RemoteWire::PostEnvelope(int rank, const Envelope& envelope, const void* data,
                                  int64_t bytes) {
  if (worker_ == nullptr) return WireStep::kNone;
  PeerState& to = peer(rank);
  if (to.posted - to.read >= kMostUnread) {
    const WireStep step = ReadReply(rank, &to);
    if (step == WireStep::kBroken) return step;
    if (to.posted - to.read >= kMostUnread) return WireStep::kNone;
  }
  EnvelopeFrame frame = {envelope.number, envelope.head, 0};
  const void* payload = data;
  auto payload_bytes = static_cast<size_t>(bytes);
  frame.head.form = kInline;
  if (envelope.refusal) {
    frame.head.form = kRefusal;
    payload = envelope.reason.data();
    payload_bytes = std::min(envelope.reason.size(), kMostTextBytes);
  } else if (bytes > kMostInlineBytes) {
    frame.head.form = kAsked;
    payload_bytes = 0;
  }
  frame.payload_bytes = static_cast<uint32_t>(payload_bytes);
  std::vector<std::byte> whole(sizeof(frame) + payload_bytes);
  std::memcpy(whole.data(), &frame, sizeof(frame));
  if (payload_bytes > 0) std::memcpy(whole.data() + sizeof(frame), payload, payload_bytes);
  to.posted = envelope.number;
  return SendSmall(rank, kEnvelopeStream, std::move(whole));
}

WireStep RemoteWire::ReadReply(int rank, PeerState* to) {
  while (!to->has_reply) {
    if (!to->awaits_reply) {
      const uint64_t tag = Tag{0, rank, kReplyStream}.Of(TagKind::kData);
      const Status posted =
          worker_->Receive(rank, tag, &to->reply, sizeof(to->reply), &to->reply_request);
      if (!posted.ok()) return Failed(rank, posted);
      to->awaits_reply = true;
    }
    if (!worker_->Test(&to->reply_request)) return WireStep::kNone;
    to->awaits_reply = false;
    const Status came = worker_->StatusOf(to->reply_request);
    if (!came.ok()) return Failed(rank, came);
    const ReplyFrame& reply = to->reply;
    const size_t bytes = to->reply_request.bytes();
    const bool whole = bytes >= kReplyHeadBytes && reply.text_bytes == bytes - kReplyHeadBytes &&
                       reply.kind <= kCredit;
    if (!whole) return Broken(rank, Concat("a verdict of ", bytes, " bytes"));
    if (reply.read < to->read || reply.read > to->posted) {
      return Broken(rank, Concat(reply.read, " envelopes read of ", to->posted));
    }
    to->read = reply.read;
    to->has_reply = reply.kind != kCredit;
  }
  return WireStep::kDone;
}

WireStep RemoteWire::NextVerdict(int rank, Verdict* verdict) {
  if (worker_ == nullptr) return WireStep::kNone;
  PeerState& to = peer(rank);
  const WireStep step = ReadReply(rank, &to);
  if (step != WireStep::kDone) return step;
  const ReplyFrame& reply = to.reply;
  // The receiver may have all of a body before UCX has given its memory back here.
  const bool leaving = to.outgoing && reply.number == to.going;
  if (leaving && reply.kind == Verdict::kDone) return WireStep::kNone;
  to.has_reply = false;
  verdict->number = reply.number;
  verdict->kind = static_cast<Verdict::Kind>(reply.kind);
  verdict->text.assign(reply.text, reply.text_bytes);
  if (verdict->kind == Verdict::kGo) to.going = reply.number;
  return WireStep::kDone;
}

WireStep RemoteWire::SendBody(int rank, const void* data, int64_t bytes, int64_t* sent) {
  if (worker_ == nullptr) return WireStep::kNone;
  PeerState& to = peer(rank);
  if (!to.outgoing) {
    // UCX only reads it.
    auto* const base = static_cast<std::byte*>(const_cast<void*>(data));
    to.outgoing.emplace(worker_, rank, Tag{to.going, rank_, kBodyStream},
                        Tag{to.going, rank, kBodyStream}, ChunkMemory{base, 0}, CutBody(bytes));
    to.outgoing->Offer(CutBody(bytes).count());
    used_ = true;
  }
  const Status moved = to.outgoing->Advance();
  if (!moved.ok()) return Failed(rank, moved);
  const int64_t before = *sent;
  *sent = to.outgoing->done() ? bytes : Moved(to.outgoing->sent(), bytes);
  if (*sent == bytes) to.outgoing.reset();
  return *sent == before ? WireStep::kNone : WireStep::kDone;
}

WireStep RemoteWire::AwaitEnvelope(int rank, PeerState* from) {
  if (!from->awaits_envelope) {
    from->envelope.resize(sizeof(EnvelopeFrame) + static_cast<size_t>(kMostInlineBytes));
    const uint64_t tag = Tag{0, rank, kEnvelopeStream}.Of(TagKind::kData);
    const Status posted = worker_->Receive(rank, tag, from->envelope.data(), from->envelope.size(),
                                           &from->envelope_request);
    if (!posted.ok()) return Failed(rank, posted);
    from->awaits_envelope = true;
  }
  if (!worker_->Test(&from->envelope_request)) return WireStep::kNone;
  from->awaits_envelope = false;
  const Status came = worker_->StatusOf(from->envelope_request);
  return came.ok() ? WireStep::kDone : Failed(rank, came);
}

WireStep RemoteWire::NextEnvelope(int rank, Envelope* envelope) {
  if (worker_ == nullptr) return WireStep::kNone;
  PeerState& from = peer(rank);
  WireStep step = AwaitEnvelope(rank, &from);
  if (step == WireStep::kDone) step = Open(rank, &from, envelope);
  if (step != WireStep::kDone || from.taken - from.credited < kMostUnread / 2) return step;
  return SendReply(rank, kCredit, 0, "");
}

// Reads the envelope that has come, and keeps its body.
WireStep RemoteWire::Open(int rank, PeerState* from, Envelope* envelope) {
  const size_t bytes = from->envelope_request.bytes();
  EnvelopeFrame frame = {};
  if (bytes >= sizeof(frame)) std::memcpy(&frame, from->envelope.data(), sizeof(frame));
  const bool whole = bytes >= sizeof(frame) && frame.payload_bytes == bytes - sizeof(frame);
  if (!whole || frame.number != from->taken + 1) {
    return Broken(rank, Concat("envelope ", frame.number, " of ", bytes, " bytes in place of ",
                               from->taken + 1));
  }
  from->taken = frame.number;
  envelope->number = frame.number;
  envelope->head = frame.head;
  envelope->refusal = frame.head.form == kRefusal;
  const std::byte* const payload = from->envelope.data() + sizeof(frame);
  if (envelope->refusal) {
    envelope->reason.assign(reinterpret_cast<const char*>(payload), frame.payload_bytes);
  } else if (frame.head.form == kInline) {
    from->bodies[frame.number].assign(payload, payload + frame.payload_bytes);
  }
  return WireStep::kDone;
}

BodyStep RemoteWire::TakeBody(int rank, const Envelope& envelope, void* data, int64_t bytes,
                              int64_t* taken) {
  PeerState& from = peer(rank);
  if (envelope.head.form == kAsked) return BodyStep::kAsk;
  const auto body = from.bodies.find(envelope.number);
  if (body == from.bodies.end() || body->second.size() != static_cast<size_t>(bytes)) {
    Broken(rank, Concat("a body of ", bytes, " bytes in form ", envelope.head.form));
    return BodyStep::kBroken;
  }
  // memcpy takes no null address, also of 0 bytes.
  if (bytes > 0) std::memcpy(data, body->second.data(), static_cast<size_t>(bytes));
  from.bodies.erase(body);
  *taken = bytes;
  return BodyStep::kTaken;
}

void RemoteWire::DropBody(int rank, const Envelope& envelope) {
  peer(rank).bodies.erase(envelope.number);
}

WireStep RemoteWire::SendReply(int rank, uint32_t kind, uint64_t number, const std::string& text) {
  PeerState& from = peer(rank);
  ReplyFrame reply = {};
  reply.number = number;
  reply.read = from.taken;
  reply.kind = kind;
  reply.text_bytes = static_cast<uint32_t>(std::min(text.size(), kMostTextBytes));
  std::memcpy(reply.text, text.data(), reply.text_bytes);
  from.credited = from.taken;
  const auto* const begin = reinterpret_cast<const std::byte*>(&reply);
  return SendSmall(rank, kReplyStream, {begin, begin + kReplyHeadBytes + reply.text_bytes});
}

WireStep RemoteWire::PostVerdict(int rank, const Verdict& verdict) {
  if (worker_ == nullptr) return WireStep::kNone;
  if (verdict.kind == Verdict::kGo) peer(rank).receiving = verdict.number;
  return SendReply(rank, verdict.kind, verdict.number, verdict.text);
}

WireStep RemoteWire::RecvBody(int rank, void* data, int64_t bytes, int64_t* received) {
  if (worker_ == nullptr) return WireStep::kNone;
  PeerState& from = peer(rank);
  if (!from.incoming) {
    from.incoming.emplace(worker_, rank, Tag{from.receiving, rank, kBodyStream},
                          Tag{from.receiving, rank_, kBodyStream},
                          ChunkMemory{static_cast<std::byte*>(data), 0}, CutBody(bytes));
  }
  const Status moved = from.incoming->Advance();
  if (!moved.ok()) return Failed(rank, moved);
  const int64_t before = *received;
  *received = from.incoming->done() ? bytes : Moved(from.incoming->arrived(), bytes);
  if (*received == bytes) from.incoming.reset();
  return *received == before ? WireStep::kNone : WireStep::kDone;
}

MessageWires::MessageWires(Link* link)
    : remote_(link->pair_worker.get(), link->control->spec().rank, link->hosts.ranks()) {
  const int rank = link->control->spec().rank;
  // Ranks of this host are woken where they sleep: in the pair lane of the group, not of the host.
  if (link->host != nullptr) {
    const auto ring = [](void* of, int local) {
      auto* const own = static_cast<Link*>(of);
      own->control->endpoint().Ring(own->hosts.own_ranks()[static_cast<size_t>(local)],
                                    control::kPairLane);
    };
    host_ = link->host->MakePairWire({ring, link});
  }
  for (int peer = 0; peer < link->hosts.ranks(); ++peer) {
    if (peer == rank) {
      wires_.routes.push_back({&self_, peer});
    } else if (link->hosts.IsLocal(peer)) {
      wires_.routes.push_back({host_.get(), link->hosts.LocalIndex(peer)});
    } else {
      wires_.routes.push_back({&remote_, peer});
    }
  }
  wires_.remote = &remote_;
}

}  // namespace collops::ucx
