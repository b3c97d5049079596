// Every number that a rank writes into shared memory, as a table of words: what a rank that lies
// can lie about. The table is made from the layouts, so that a new field is in it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/backends/shm/pair_wire.h"
#include "collops/comm/control/board.h"

namespace fields {

using collops::Communicator;
using collops::shm::SegmentLayout;

// One field, wherever it occurs: for both parities of the step, for every peer, in every slot.
struct Field {
  std::string name;
  size_t bytes;
  std::vector<std::byte*> places;
  bool is_text = false;
};

class Table {
 public:
  Table(Communicator& comm, int liar)
      : liar_(liar),
        size_(comm.size()),
        board_(ControlOf(comm).endpoint().board()),
        layout_(ControlOf(comm).backend_memory(), comm.size()),
        pairs_(layout_.pairs(), comm.size()) {
    AddBoard();
    AddCallRecord();
    AddSignals();
    AddPairs();
  }
  const std::vector<Field>& all() const { return all_; }

 private:
  template <typename T>
  static std::byte* Bytes(T* at) {
    return reinterpret_cast<std::byte*>(at);
  }
  // One field for all of a text: what is read of it may have no end, and be no UTF-8.
  void AddText(const std::string& name, const std::vector<std::byte*>& places, size_t bytes) {
    Field field{name + ", whole", 8, {}};
    for (std::byte* place : places) {
      for (size_t begin = 0; begin + 8 <= bytes; begin += 8) field.places.push_back(place + begin);
    }
    field.is_text = true;
    all_.push_back(field);
  }
  // A field for every word of 4 and of 8 bytes of a structure of so many bytes.
  void AddWords(const std::string& name, const std::vector<std::byte*>& places, size_t bytes) {
    for (const size_t width : {size_t{4}, size_t{8}}) {
      for (size_t begin = 0; begin + width <= bytes; begin += width) {
        Field field{name + "+" + std::to_string(begin), width, {}};
        for (std::byte* place : places) field.places.push_back(place + begin);
        all_.push_back(field);
      }
    }
  }

  void AddBoard() {
    using collops::control::Member;
    AddWords("GroupState", {Bytes(&board_.group())}, 16);
    std::byte* const member = Bytes(&board_.member(liar_));
    AddWords("Member.finished", {member}, 8);
    constexpr size_t kAsleep = offsetof(Member, asleep);
    AddWords("Member.asleep", {member + kAsleep}, 16);  // and the doorbells
    constexpr size_t kLeft = offsetof(Member, left);
    AddWords("Member.left", {member + kLeft}, offsetof(Member, reason) - kLeft);
    AddWords("Member.reason", {member + offsetof(Member, reason)}, 16);
    AddText("Member.reason", {member + offsetof(Member, reason)}, collops::control::kReasonBytes);
    AddWords("Member.pair_call", {member + offsetof(Member, pair_call)}, 64);
    AddText("Member.pair_call", {member + offsetof(Member, pair_call)}, 64);
    AddWords("Member.roll", {member + offsetof(Member, roll)}, sizeof(collops::control::RollWords));
    AddWords("Member.heads",
             {Bytes(&board_.member(liar_).heads[0]), Bytes(&board_.member(liar_).heads[1])},
             sizeof(collops::control::SignalHead));
    AddWords("refusal reason",
             {Bytes(board_.refusal_reason(liar_, 0)), Bytes(board_.refusal_reason(liar_, 1))}, 8);
    AddText("refusal reason",
            {Bytes(board_.refusal_reason(liar_, 0)), Bytes(board_.refusal_reason(liar_, 1))},
            collops::control::kReasonBytes);
    AddWords("Agreement", {Bytes(board_.agreement(liar_, 0)), Bytes(board_.agreement(liar_, 1))},
             static_cast<size_t>(collops::Agreement::EncodedBytes(size_)));
    AddWords("shared bytes", {board_.shared(liar_, 0), board_.shared(liar_, 1)}, 24);
  }

  void AddCallRecord() {
    using collops::shm::CallRecord;
    std::vector<std::byte*> records = {Bytes(&layout_.call_record(liar_, 0)),
                                       Bytes(&layout_.call_record(liar_, 1))};
    AddWords("CallRecord", records, offsetof(CallRecord, data));
    // Where the slices for the peers begin, in a call with different bytes for each of them.
    const size_t cell = collops::shm::kCallRecordBytes / static_cast<size_t>(size_ - 1) / 64 * 64;
    std::vector<std::byte*> cells;
    for (std::byte* record : records) {
      for (int lane = 0; lane < size_ - 1; ++lane) {
        cells.push_back(record + offsetof(CallRecord, data) + static_cast<size_t>(lane) * cell);
      }
    }
    AddWords("CellHead", cells, 8);
  }

  void AddSignals() {
    std::vector<std::byte*> produced, consumed, fused;
    for (int r = 0; r < size_; ++r) {
      for (const auto readers : {collops::shm::kOneReader, collops::shm::kAllRanks}) {
        produced.push_back(Bytes(&layout_.produced(liar_, r, readers)));
        consumed.push_back(Bytes(&layout_.consumed(r, liar_, readers)));
      }
    }
    for (int i = 0; i < SegmentLayout::NumFusedSignals(size_); ++i) {
      fused.push_back(Bytes(&layout_.fused_signal(liar_, i)));
    }
    AddWords("ChunkSignal.produced", produced, 8);
    AddWords("ChunkSignal.consumed", consumed, 8);
    AddWords("FusedSignal", fused, 8);
  }

  void AddPairs() {
    using namespace collops::shm;  // NOLINT: the structures of the pair wire
    std::vector<std::byte*> receiver, sender, envelopes, texts, words;
    for (int r = 0; r < size_; ++r) {
      receiver.push_back(Bytes(&pairs_.receiver_line(r, liar_)));
      sender.push_back(Bytes(&pairs_.sender_line(liar_, r)));
      for (uint64_t slot = 0; slot < kPairSlots; ++slot) {
        envelopes.push_back(Bytes(&pairs_.envelope(liar_, r, slot)));
      }
    }
    AddWords("ReceiverLine", receiver, 3 * sizeof(VerdictSlot) + 24 + 16);
    AddWords("SenderLine", sender, 32);
    constexpr size_t kBodyPlace = 24;  // behind the head
    AddWords("EnvelopeSlot", envelopes, sizeof(EnvelopeSlot) + kBodyPlace);
    for (uint64_t slot = 0; slot < kPairTexts; ++slot) {
      texts.push_back(Bytes(&pairs_.text(liar_, slot)));
      words.push_back(texts.back() + offsetof(TextSlot, words));
    }
    AddWords("TextSlot", texts, 24);
    AddText("TextSlot.words", words, kPairTextWords * 8);
  }

  int liar_;
  int size_;
  collops::control::Board board_;
  SegmentLayout layout_;
  collops::shm::PairLayout pairs_;
  std::vector<Field> all_;
};

}  // namespace fields
