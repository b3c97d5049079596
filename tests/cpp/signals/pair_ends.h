// What the two ends of a pair wire do: the order in which backends/shm/pair_wire.cpp uses the
// functions of its header, which are the library's own.
#pragma once

#include <algorithm>
#include <string>

#include "signals/pair_board.h"

namespace signals {

using collops::shm::Before;
using collops::shm::HasRoom;
using collops::shm::Look;
using collops::shm::Publish;

enum class Judgement : uint64_t { kGo = 0, kDone = 1 };

inline void Expect(bool holds, const std::string& what) {
  Explorer::Current().Expect(holds, what);
}

// Functions named Can... and Has... only look: they may be called in a wait.
class PairSender {
 public:
  explicit PairSender(PairBoard* board)
      : board_(board),
        posted_(board->setup.before),
        freed_(board->setup.before),
        verdicts_read_(board->setup.before),
        chunks_written_(board->setup.chunks_before) {}

  uint64_t posted() const { return posted_; }
  uint64_t verdicts_read() const { return verdicts_read_; }
  // All that it does from here on depends on, besides the memory.
  uint64_t State() const {
    return Mix(Mix(Mix(posted_, freed_), verdicts_read_), chunks_written_ * 2 + (told_ ? 1 : 0));
  }

  // ShmPairWire::PostEnvelope().
  bool CanPost() const {
    uint64_t freed = freed_;
    return HasRoom(posted_, kSlots, board_->envelopes_read, &freed);
  }
  bool Post() {
    if (!HasRoom(posted_, kSlots, board_->envelopes_read, &freed_)) {
      Expect(freed_ <= posted_, "more envelopes read than posted");
      return false;
    }
    const uint64_t number = posted_ + 1;
    board_->bodies[number % kSlots].Write(BodyOf(number));
    board_->heads[number % kSlots].Write(verdicts_read_);
    posted_ = number;
    Publish(&board_->numbers[number % kSlots], number);
    return true;
  }
  // NextVerdict().
  bool HasVerdict() const { return StampOfNext() >> 2 != Before(verdicts_read_ + 1, kSlots); }
  bool NextVerdict(uint64_t* number, Judgement* judgement) {
    const uint64_t stamp = StampOfNext();
    const uint64_t next = verdicts_read_ + 1;
    if (stamp >> 2 != next) {
      Expect(stamp >> 2 == Before(next, kSlots), "a verdict that cannot be");
      return false;
    }
    *judgement = static_cast<Judgement>(stamp & 3);
    *number = board_->verdicts[next % kSlots].Read();
    verdicts_read_ = next;
    Publish(&board_->verdicts_read, next);
    return true;
  }
  // SendBody(), one chunk.
  bool CanSendChunk() const { return Unread() < kChunks; }
  bool SendChunk() {
    if (!told_) collops::shm::WritePlace(&board_->ring, uint64_t{1});
    told_ = true;
    if (Unread() >= kChunks) return false;
    board_->chunks[chunks_written_ % kChunks].Write(ChunkOf(chunks_written_));
    Publish(&board_->chunks_written, ++chunks_written_);
    return true;
  }

 private:
  uint64_t StampOfNext() const { return Look(board_->stamps[(verdicts_read_ + 1) % kSlots]); }
  uint64_t Unread() const {
    return collops::shm::UnreadForSender(chunks_written_, board_->chunks_read);
  }

  PairBoard* board_;
  uint64_t posted_;
  uint64_t freed_;
  uint64_t verdicts_read_;
  uint64_t chunks_written_;
  bool told_ = false;
};

class PairReceiver {
 public:
  explicit PairReceiver(PairBoard* board)
      : board_(board),
        verdicts_(board->setup.before),
        verdicts_seen_(board->setup.before),
        chunks_read_(board->setup.chunks_before) {
    slots_.read = slots_.released = board->setup.before;
  }

  uint64_t read() const { return slots_.read; }
  uint64_t verdicts() const { return verdicts_; }
  uint64_t State() const {
    const uint64_t slots = Mix(Mix(slots_.read, slots_.released), slots_.held);
    return Mix(Mix(Mix(slots, verdicts_), verdicts_seen_), chunks_read_);
  }

  // ShmPairWire::NextEnvelope(). The body is in the slot if `in_slot`.
  bool HasEnvelope() const { return NumberOfNext() != Before(slots_.read + 1, kSlots); }
  bool NextEnvelope(bool in_slot) {
    const uint64_t number = NumberOfNext();
    const uint64_t next = slots_.read + 1;
    if (number != next) {
      Expect(number == Before(next, kSlots), "an envelope that cannot be");
      return false;
    }
    const uint64_t seen = board_->heads[next % kSlots].Read();
    Expect(seen <= verdicts_, "more verdicts read than posted");
    verdicts_seen_ = std::max(verdicts_seen_, seen);
    slots_.CountRead(in_slot, &board_->envelopes_read);
    return true;
  }
  // TakeBody(). False: the slot was given back.
  bool TakeBody(uint64_t number) {
    if (!slots_.Holds(number)) return false;
    Expect(board_->bodies[number % kSlots].Read() == BodyOf(number), "another message's body");
    slots_.Release(number, &board_->envelopes_read);
    return true;
  }
  // PostVerdict().
  bool CanPostVerdict() const {
    uint64_t seen = verdicts_seen_;
    return HasRoom(verdicts_, kSlots, board_->verdicts_read, &seen);
  }
  bool PostVerdict(uint64_t number, Judgement judgement) {
    if (!HasRoom(verdicts_, kSlots, board_->verdicts_read, &verdicts_seen_)) {
      Expect(verdicts_seen_ <= verdicts_, "more verdicts read than posted");
      return false;
    }
    const uint64_t count = ++verdicts_;
    board_->verdicts[count % kSlots].Write(number);
    Publish(&board_->stamps[count % kSlots], count << 2 | static_cast<uint64_t>(judgement));
    return true;
  }
  // RecvBody(): what has come, and no more than so many chunks.
  bool HasChunk() const { return Unread() > 0; }
  uint64_t RecvChunks(uint64_t most) {
    const uint64_t unread = Unread();
    Expect(unread <= kChunks, "more chunks than a ring has");
    if (unread == 0) return 0;
    Expect(collops::shm::ReadPlace(board_->ring) == 1, "a ring that is nowhere");
    const uint64_t count = std::min(unread, most);
    for (uint64_t i = 0; i < count; ++i) {
      Expect(board_->chunks[chunks_read_ % kChunks].Read() == ChunkOf(chunks_read_),
             "another chunk");
      Publish(&board_->chunks_read, ++chunks_read_);
    }
    return count;
  }

 private:
  uint64_t NumberOfNext() const { return Look(board_->numbers[(slots_.read + 1) % kSlots]); }
  uint64_t Unread() const {
    return collops::shm::UnreadForReceiver(board_->chunks_written, chunks_read_);
  }

  PairBoard* board_;
  collops::shm::SlotsRead<kSlots> slots_;
  uint64_t verdicts_;
  uint64_t verdicts_seen_;
  uint64_t chunks_read_;
};

}  // namespace signals
