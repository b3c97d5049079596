#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "collops/comm/pairs/pair_wire.h"

namespace collops::ucx {

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

}  // namespace collops::ucx
