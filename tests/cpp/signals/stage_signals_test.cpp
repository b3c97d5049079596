// The ring of chunks of a stage in every order of 2 and 3 ranks: more chunks than slots, the first
// chunk before the announcement, refusals in between, counts that wrap around.
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "signals/signal_ranks.h"

namespace {

using signals::Data;
using signals::End;
using signals::Explorer;
using signals::Group;
using signals::Rank;
using signals::Search;
using signals::Weakened;

// By rank: the chunks that it stages for all others in a step.
struct Call {
  std::vector<int64_t> chunks;
  bool is_short = false;  // staged before the announcement
  int refuser = -1;
};

// One rank's part in one call, as AllGatherV over StageWriter, StageReader and MoveStages.
class StagedStep {
 public:
  StagedStep(int rank, Rank* self, const Call& call)
      : rank_(rank), self_(self), call_(call), read_(call.chunks.size()) {}

  void Run() {
    if (call_.refuser == rank_) return static_cast<void>(self_->Refuse());
    self_->Begin();
    staged_first_ = Chunks(rank_) > 0 && self_->PreviousFinished();
    const bool announces = staged_first_ && call_.is_short;
    if (announces) WriteSlot();
    self_->Publish(announces ? 1 : 0);
    if (staged_first_ && !announces) WriteSlot();
    std::vector<bool> known(call_.chunks.size());
    const End heard = self_->AwaitAll(
        [&](int peer, uint64_t record) { known[static_cast<size_t>(peer)] = record == 1; });
    self_->Expect((heard == End::kRefused) == (call_.refuser >= 0), "an end that cannot be");
    if (heard != End::kOk) return;
    if (staged_first_) CountChunk();
    for (int peer = 0; peer < self_->group().size; ++peer) {
      Reader& reader = read_[static_cast<size_t>(peer)];
      if (peer == rank_ || Chunks(peer) == 0) continue;
      reader.base =
          self_->words(rank_).consumed[static_cast<size_t>(peer)].load(std::memory_order_relaxed);
      reader.known = known[static_cast<size_t>(peer)] ? 1 : 0;
      reader.chunks = Chunks(peer);
    }
    Move();
    self_->Expect(self_->Finish() == End::kOk, "a failure");
  }

 private:
  struct Reader {
    uint64_t base = 0;
    int64_t known = 0;
    int64_t chunks = 0;
    int64_t read = 0;
  };

  int64_t Chunks(int rank) const { return call_.chunks[static_cast<size_t>(rank)]; }
  const signals::Plain& SlotOf(int writer, int64_t chunk) const {
    const int64_t slot = chunk % self_->group().num_slots;
    return self_->words(writer).slots[static_cast<size_t>(slot)];
  }

  bool CanWrite() const {
    if (written_ == Chunks(rank_)) return false;
    bool room = true;
    for (int r = 0; r < self_->group().size; ++r) {
      if (r == rank_) continue;
      const uint64_t written =
          self_->words(rank_).produced[static_cast<size_t>(r)].load(std::memory_order_relaxed);
      const uint64_t unread = collops::shm::UnreadForSender(
          written, self_->words(r).consumed[static_cast<size_t>(rank_)]);
      room = room && unread < static_cast<uint64_t>(self_->group().num_slots);
    }
    return room;
  }
  void WriteSlot() const { SlotOf(rank_, written_).Write(Data(rank_, self_->number(), written_)); }
  void CountChunk() {
    ++written_;
    for (int r = 0; r < self_->group().size; ++r) {
      if (r == rank_) continue;
      signals::Word<uint64_t>& produced = self_->words(rank_).produced[static_cast<size_t>(r)];
      collops::shm::Publish(&produced, produced.load(std::memory_order_relaxed) + 1);
    }
  }
  bool CanRead(int writer) const {
    const Reader& reader = read_[static_cast<size_t>(writer)];
    if (reader.read == reader.chunks) return false;
    if (reader.read < reader.known) return true;
    const auto unread = static_cast<int64_t>(
        collops::shm::UnreadForReceiver(self_->words(writer).produced[static_cast<size_t>(rank_)],
                                        reader.base + static_cast<uint64_t>(reader.read)));
    return unread > 0;
  }
  void Read(int writer) {
    Reader& reader = read_[static_cast<size_t>(writer)];
    self_->Expect(SlotOf(writer, reader.read).Read() == Data(writer, self_->number(), reader.read),
                  "the wrong chunk");
    ++reader.read;
    collops::shm::Publish(&self_->words(rank_).consumed[static_cast<size_t>(writer)],
                          reader.base + static_cast<uint64_t>(reader.read));
  }
  // All that a move depends on, besides the memory.
  uint64_t LocalState() const {
    uint64_t state = signals::Mix(self_->number(), static_cast<uint64_t>(written_) + 100);
    for (const Reader& reader : read_) {
      state = signals::Mix(state, reader.base + static_cast<uint64_t>(reader.read));
      state = signals::Mix(state, static_cast<uint64_t>(reader.known));
    }
    return state;
  }
  bool Done() const {
    for (const Reader& reader : read_) {
      if (reader.read < reader.chunks) return false;
    }
    return written_ == Chunks(rank_);
  }
  void Move() {
    const int size = self_->group().size;
    while (!Done()) {
      Explorer::Current().Forget(LocalState());
      self_->Until([&] {
        if (CanWrite()) return true;
        for (int r = 0; r < size; ++r) {
          if (CanRead(r)) return true;
        }
        return false;
      });
      while (CanWrite()) {
        WriteSlot();
        CountChunk();
      }
      for (int r = 0; r < size; ++r) {
        if (CanRead(r)) Read(r);
      }
    }
  }

  int rank_;
  Rank* self_;
  const Call& call_;
  std::vector<Reader> read_;  // by writer
  int64_t written_ = 0;
  bool staged_first_ = false;
};

auto Calls(const std::vector<Call>& calls) {
  return [calls](int rank, Rank* self) {
    for (const Call& call : calls) StagedStep(rank, self, call).Run();
  };
}

Group Of(int size) {
  Group group;
  group.size = size;
  group.num_slots = 2;
  return group;
}

}  // namespace

TEST(FiveChunksGoThroughTwoSlots) {
  EXPECT_EQ(Search("one way", Of(2), Calls({{{5, 0}}}), 1e6), "");
  EXPECT_EQ(Search("one way, twice", Of(2), Calls({{{3, 0}}, {{3, 0}}}), 1e6), "");
  EXPECT_EQ(Search("both ways", Of(2), Calls({{{3, 3}}}), 1e6), "");
  EXPECT_EQ(Search("two readers", Of(3), Calls({{{3, 0, 0}}}), 1e6), "");
}

// While the peers may still be reading the chunks of the call before.
TEST(TheFirstChunkIsStagedBeforeTheAnnouncement) {
  EXPECT_EQ(Search("short", Of(2), Calls({{{1, 1}, true}, {{1, 1}, true}, {{2, 1}, true}}), 1e6),
            "");
  EXPECT_EQ(Search("long", Of(2), Calls({{{3, 1}}, {{3, 1}}}), 1e6), "");
  EXPECT_EQ(Search("two readers, short", Of(3), Calls({{{1, 0, 0}, true}, {{1, 0, 0}, true}}), 1e6),
            "");
}

// A chunk that was staged for the refused call is staged again for the next one.
TEST(ARefusalComesBetweenStagedCalls) {
  for (const int refuser : {0, 1}) {
    const std::vector<Call> calls = {{{2, 1}, true}, {{2, 1}, true, refuser}, {{2, 1}, true}};
    EXPECT_EQ(Search("refused", Of(2), Calls(calls), 1e6), "");
  }
}

TEST(CountsWrapAround) {
  Group group = Of(2);
  group.chunks_before = UINT64_MAX - 2;
  EXPECT_EQ(Search("wrapping", group, Calls({{{5, 0}, true}}), 1e6), "");
  EXPECT_EQ(Search("wrapping", group, Calls({{{2, 1}, true}, {{2, 1}, true}}), 1e6), "");
}

TEST(EachOrderThatIsMissingIsFound) {
  const Call large = {{3, 0}};
  const Call early = {{1, 0}, true};
  for (const Weakened& weakened : std::vector<Weakened>{{"produced", std::memory_order_release},
                                                        {"produced", std::memory_order_acquire},
                                                        {"consumed", std::memory_order_release},
                                                        {"consumed", std::memory_order_acquire}}) {
    EXPECT_CONTAINS(Search(weakened.words.c_str(), Of(2), Calls({large}), 0, weakened),
                    "a chunk of rank 0 while rank");
  }
  for (const auto order : {std::memory_order_release, std::memory_order_acquire}) {
    EXPECT_CONTAINS(Search("finished", Of(2), Calls({early, early}), 0, {"finished", order}),
                    "rank 0 writes a chunk of rank 0 while rank 1 may still read it");
  }
}
