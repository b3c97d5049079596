// A pair wire of plain queues for tests of the lane: items stay under way until the test delivers
// them, so that every order of arrival can be tested. Room for 2 envelopes and 2 verdicts per pair;
// bodies up to 8 bytes travel with the envelope, and the last two of them are stored.
#ifndef COLLOPS_TESTS_CPP_QUEUE_WIRE_H_
#define COLLOPS_TESTS_CPP_QUEUE_WIRE_H_

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "pairs/pair_kit.h"

namespace pairs {

// One direction between one pair of ranks.
struct Link {
  std::deque<collops::Envelope> flying_envelopes, envelopes;
  std::deque<collops::Verdict> flying_verdicts, verdicts;
  std::deque<std::vector<std::byte>> flying_chunks, chunks;
  std::map<uint64_t, std::vector<std::byte>> bodies;  // that travelled with an envelope
};

struct Net {
  explicit Net(int rank_size)
      : size(rank_size), links(static_cast<size_t>(rank_size * rank_size)) {}
  Link& link(int sender, int receiver) {
    return links[static_cast<size_t>(sender * size + receiver)];
  }
  // Delivers one item; `way` is one of 3 per link. False if there was none.
  bool Deliver(int sender, int receiver, int way) {
    Link& at = link(sender, receiver);
    switch (way) {
      case 0:
        if (at.flying_envelopes.empty()) return false;
        at.envelopes.push_back(at.flying_envelopes.front());
        at.flying_envelopes.pop_front();
        return true;
      case 1:
        if (at.flying_verdicts.empty()) return false;
        at.verdicts.push_back(at.flying_verdicts.front());
        at.flying_verdicts.pop_front();
        return true;
      default:
        if (at.flying_chunks.empty()) return false;
        at.chunks.push_back(at.flying_chunks.front());
        at.flying_chunks.pop_front();
        return true;
    }
  }
  bool DeliverAll() {
    bool moved = false;
    for (int s = 0; s < size; ++s) {
      for (int r = 0; r < size; ++r) {
        for (int way = 0; way < 3; ++way) {
          while (Deliver(s, r, way)) moved = true;
        }
      }
    }
    return moved;
  }

  int size;
  std::vector<Link> links;
};

class QueueWire : public collops::PairWire {
 public:
  static constexpr int64_t kInlineBytes = 8;
  static constexpr int64_t kChunkBytes = 16;

  QueueWire(Net* net, int rank) : net_(net), rank_(rank) {}

  collops::WireStep PostEnvelope(int peer, const collops::Envelope& envelope, const void* data,
                                 int64_t bytes) override {
    Link& out = net_->link(rank_, peer);
    if (out.flying_envelopes.size() + out.envelopes.size() >= 2) return Step(false);
    collops::Envelope posted = envelope;
    posted.head.form = bytes <= kInlineBytes ? 0 : 1;
    if (posted.head.form == 0) {
      out.bodies[envelope.number] = Bytes(data, bytes);
      while (out.bodies.size() > 2) out.bodies.erase(out.bodies.begin());
    }
    out.flying_envelopes.push_back(posted);
    Note('P', peer, envelope.number);
    return Step(true);
  }
  collops::WireStep NextVerdict(int peer, collops::Verdict* verdict) override {
    Link& out = net_->link(rank_, peer);
    if (out.verdicts.empty()) return Step(false);
    *verdict = out.verdicts.front();
    out.verdicts.pop_front();
    Note('v', peer, verdict->number * 4 + verdict->kind);
    return Step(true);
  }
  collops::WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) override {
    Link& out = net_->link(rank_, peer);
    if (out.flying_chunks.size() + out.chunks.size() >= 2) return Step(false);
    const int64_t chunk = std::min(kChunkBytes, bytes - *sent);
    out.flying_chunks.push_back(Bytes(static_cast<const std::byte*>(data) + *sent, chunk));
    *sent += chunk;
    Note('B', peer, static_cast<uint64_t>(*sent));
    return Step(true);
  }
  collops::WireStep NextEnvelope(int peer, collops::Envelope* envelope) override {
    Link& in = net_->link(peer, rank_);
    if (in.envelopes.empty()) return Step(false);
    *envelope = in.envelopes.front();
    in.envelopes.pop_front();
    Note('e', peer, envelope->number);
    return Step(true);
  }
  collops::BodyStep TakeBody(int peer, const collops::Envelope& envelope, void* data, int64_t bytes,
                             int64_t* /*taken*/) override {
    Link& in = net_->link(peer, rank_);
    const auto body = in.bodies.find(envelope.number);
    Note('t', peer, envelope.number * 2 + (body == in.bodies.end() ? 1 : 0));
    if (body == in.bodies.end()) return collops::BodyStep::kAsk;
    if (bytes > 0) std::memcpy(data, body->second.data(), static_cast<size_t>(bytes));
    in.bodies.erase(body);
    return collops::BodyStep::kTaken;
  }
  void DropBody(int peer, const collops::Envelope& envelope) override {
    net_->link(peer, rank_).bodies.erase(envelope.number);
  }
  collops::WireStep PostVerdict(int peer, const collops::Verdict& verdict) override {
    Link& in = net_->link(peer, rank_);
    if (in.flying_verdicts.size() + in.verdicts.size() >= 2) return Step(false);
    in.flying_verdicts.push_back(verdict);
    Note('V', peer, verdict.number * 4 + verdict.kind);
    return Step(true);
  }
  collops::WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) override {
    Link& in = net_->link(peer, rank_);
    if (in.chunks.empty()) return Step(false);
    const int64_t chunk = std::min(kChunkBytes, bytes - *received);
    std::memcpy(static_cast<std::byte*>(data) + *received, in.chunks.front().data(),
                static_cast<size_t>(chunk));
    in.chunks.pop_front();
    *received += chunk;
    Note('b', peer, static_cast<uint64_t>(*received));
    return Step(true);
  }
  Status fault() const override { return Error(collops::ERROR_INTERNAL_ERROR, "no fault"); }

  // Records all that this rank has seen and done, in order, which determines its state.
  void Note(char what, int peer, uint64_t value) {
    for (const uint64_t word : {static_cast<uint64_t>(what), static_cast<uint64_t>(peer), value}) {
      history = (history ^ word) * 0x9e3779b97f4a7c15ULL;
      history ^= history >> 29;
    }
  }
  uint64_t history = 1;

 private:
  static collops::WireStep Step(bool moved) {
    return moved ? collops::WireStep::kDone : collops::WireStep::kNone;
  }
  static std::vector<std::byte> Bytes(const void* data, int64_t bytes) {
    const std::byte* const first = static_cast<const std::byte*>(data);
    return bytes == 0 ? std::vector<std::byte>() : std::vector<std::byte>(first, first + bytes);
  }
  Net* net_;
  int rank_;
};

// Ranks on one net.
class QueueRanks {
 public:
  explicit QueueRanks(int size, bool may_fail = false) : net(size), group(size, 0, may_fail) {
    for (int rank = 0; rank < size; ++rank) {
      wires.emplace_back(&net, rank);
      lanes.push_back(std::make_unique<PairLane>(&wires.back(), &group[rank]));
    }
  }
  PairLane& operator[](int rank) { return *lanes[static_cast<size_t>(rank)]; }
  // Delivers and polls until nothing moves.
  void Settle() {
    bool moved = true;
    while (moved) {
      moved = net.DeliverAll();
      for (const auto& lane : lanes) moved = lane->Poll() || moved;
    }
  }

  Net net;
  std::deque<QueueWire> wires;
  Group group;
  std::vector<std::unique_ptr<PairLane>> lanes;
};

}  // namespace pairs

#endif  // COLLOPS_TESTS_CPP_QUEUE_WIRE_H_
