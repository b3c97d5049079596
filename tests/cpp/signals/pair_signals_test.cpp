// The words of a pair wire in every order of a sender and a receiver: slots of envelopes and of
// verdicts that are used again, a ring, texts that are overwritten, and numbers at the end of their
// range.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "check.h"
#include "signals/pair_ends.h"

namespace {

using collops::shm::TextSlotIn;
using signals::Expect;
using signals::Explorer;
using signals::Judgement;
using signals::Mix;
using signals::ModelMemory;
using signals::PairBoard;
using signals::PairReceiver;
using signals::PairSender;
using signals::PairSetup;
using signals::Weakened;

void Forget(uint64_t state) {
  Explorer::Current().Forget(state);
}
template <typename Ready>
void Await(const Ready& ready) {
  Explorer::Current().Await(ready);
}

// When the receiver takes the bodies that are in their envelopes.
enum class Taking {
  kAtOnce,
  kReversed,  // the second of two before the first
  kLate,      // when three envelopes are read, which has cost the first two their slots
};

// So many messages, whose bodies are in their envelopes.
struct Envelopes {
  uint64_t messages = 4;
  Taking taking = Taking::kAtOnce;

  void Send(PairBoard* board) const {
    PairSender self(board);
    const uint64_t end = board->setup.before + messages;
    uint64_t judged = 0;
    while (self.verdicts_read() < end) {
      Forget(Mix(self.State(), judged));
      Await([&] { return (self.posted() < end && self.CanPost()) || self.HasVerdict(); });
      while (self.posted() < end && self.Post()) continue;
      uint64_t number = 0;
      Judgement judgement = Judgement::kGo;
      if (!self.NextVerdict(&number, &judgement)) continue;
      const uint64_t bit = uint64_t{1} << (number - board->setup.before);
      Expect((judged & bit) == 0, "two verdicts on one message");
      Expect(judgement == Judgement::kDone, "another verdict");
      judged |= bit;
    }
  }
  void Receive(PairBoard* board) const {
    PairReceiver self(board);
    const uint64_t end = board->setup.before + messages;
    const uint64_t at_once = taking == Taking::kAtOnce ? 1 : taking == Taking::kReversed ? 2 : 3;
    std::vector<uint64_t> untaken;
    std::vector<uint64_t> unjudged;
    while (self.verdicts() < end) {
      uint64_t state = self.State();
      for (const uint64_t number : untaken) state = Mix(state, number);
      for (const uint64_t number : unjudged) state = Mix(state, number * 2);
      Forget(state);
      Await([&] {
        return (!unjudged.empty() && self.CanPostVerdict()) ||
               (self.read() < end && self.HasEnvelope());
      });
      if (self.read() < end && self.NextEnvelope(true)) untaken.push_back(self.read());
      if (untaken.size() == at_once || self.read() == end) Take(&self, &untaken, &unjudged);
      while (!unjudged.empty() && self.PostVerdict(unjudged.front(), Judgement::kDone)) {
        unjudged.erase(unjudged.begin());
      }
    }
  }
  void Take(PairReceiver* self, std::vector<uint64_t>* untaken,
            std::vector<uint64_t>* unjudged) const {
    if (taking == Taking::kReversed) std::reverse(untaken->begin(), untaken->end());
    for (const uint64_t number : *untaken) {
      const bool is_last = number == self->read();
      const bool had = self->TakeBody(number);
      Expect(had || (taking == Taking::kLate && !is_last), "the body is gone");
      unjudged->push_back(number);
    }
    untaken->clear();
  }
};

// Messages through a ring, each of so many chunks: an envelope, kGo, the chunks, kDone.
struct Rings {
  uint64_t messages = 2;
  uint64_t chunks = 3;

  void Send(PairBoard* board) const {
    PairSender self(board);
    for (uint64_t message = 0; message < messages; ++message) {
      Forget(self.State());
      Expect(self.Post(), "no room");
      AwaitVerdict(&self, Judgement::kGo);
      for (uint64_t sent = 0; sent < chunks;) {
        Forget(Mix(self.State(), sent));
        Await([&] { return self.CanSendChunk(); });
        while (sent < chunks && self.SendChunk()) ++sent;
      }
      AwaitVerdict(&self, Judgement::kDone);
    }
  }
  static void AwaitVerdict(PairSender* self, Judgement due) {
    uint64_t number = 0;
    Judgement judgement = Judgement::kGo;
    Await([&] { return self->HasVerdict(); });
    Expect(self->NextVerdict(&number, &judgement), "no verdict");
    Expect(number == self->posted() && judgement == due, "a verdict that is not due");
  }
  void Receive(PairBoard* board) const {
    PairReceiver self(board);
    for (uint64_t message = 0; message < messages; ++message) {
      Forget(self.State());
      Await([&] { return self.HasEnvelope(); });
      self.NextEnvelope(false);
      PostVerdict(&self, Judgement::kGo);
      for (uint64_t received = 0; received < chunks;) {
        Forget(Mix(self.State(), received));
        Await([&] { return self.HasChunk(); });
        received += self.RecvChunks(chunks - received);
      }
      PostVerdict(&self, Judgement::kDone);
    }
  }
  static void PostVerdict(PairReceiver* self, Judgement judgement) {
    Await([&] { return self->CanPostVerdict(); });
    Expect(self->PostVerdict(self->read(), judgement), "no room");
  }
};

template <typename Traffic>
std::string Search(const char* what, const Traffic& traffic, const PairSetup& setup = {},
                   double least_executions = 0, const Weakened& weakened = {}) {
  Explorer explorer(weakened);
  PairBoard board(setup);
  return Explore(&explorer, what, {[&] { traffic.Send(&board); }, [&] { traffic.Receive(&board); }},
                 least_executions);
}

constexpr size_t kTextWords = 2;
using TextSlot = TextSlotIn<ModelMemory, kTextWords>;

// A slot of texts is written twice while it is read. The reader gets the text that it asks for, or
// nothing.
std::string OverwriteText(const Weakened& weakened = {}) {
  Explorer explorer(weakened);
  explorer.Name("text", signals::kSender);
  TextSlot slot;
  bool got = false;
  bool missed = false;
  const auto writer = [&] {
    for (uint64_t stamp = 1; stamp <= 2; ++stamp) {
      const std::array<uint64_t, kTextWords> text = {stamp * 10, stamp * 10 + 1};
      slot.Write(stamp, text.data());
    }
  };
  const auto reader = [&] {
    std::array<uint64_t, kTextWords> text = {};
    const bool whole = slot.Read(1, text.data());
    (whole ? got : missed) = true;
    Expect(!whole || (text[0] == 10 && text[1] == 11), "parts of two texts");
  };
  const std::string fault = Explore(&explorer, "a text", {writer, reader}, 10);
  if (fault.empty()) EXPECT_TRUE(got && missed);
  return fault;
}

constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;

}  // namespace

TEST(SlotsOfEnvelopesAndVerdictsAreUsedAgain) {
  EXPECT_EQ(Search("at once", Envelopes{5}, {}, 1e6), "");
  EXPECT_EQ(Search("reversed", Envelopes{6, Taking::kReversed}, {}, 1e6), "");
  EXPECT_EQ(Search("late", Envelopes{6, Taking::kLate}, {}, 1e6), "");
}

TEST(ARingIsUsedAgain) {
  EXPECT_EQ(Search("one message", Rings{1, 5}, {}, 100), "");
  EXPECT_EQ(Search("three messages", Rings{3, 3}, {}, 1e6), "");
}

TEST(CountsOfChunksWrapAround) {
  PairSetup setup;
  setup.chunks_before = UINT64_MAX - 2;
  EXPECT_EQ(Search("wrapping", Rings{1, 5}, setup, 100), "");
  EXPECT_EQ(Search("wrapping", Rings{2, 3}, setup, 1e4), "");
}

// A count of verdicts has 62 bits, which are enough for 146 years of a message per nanosecond. All
// numbers work, and the first that is too large is one that no rank may write.
TEST(MessagesHaveNumbersUpToTheEndOfTheirRange) {
  constexpr uint64_t kLast = (uint64_t{1} << 62) - 1;
  PairSetup setup;
  setup.before = kLast - 4;
  for (const Taking taking : {Taking::kAtOnce, Taking::kReversed, Taking::kLate}) {
    EXPECT_EQ(Search("the last messages", Envelopes{4, taking}, setup, 1e4), "");
  }
  EXPECT_EQ(Search("the last rings", Rings{2, 3}, setup, 1e4), "");
  EXPECT_CONTAINS(Search("one more", Envelopes{5}, setup), "rank 0: a verdict that cannot be");
}

TEST(EachOrderOfAPairThatIsMissingIsFound) {
  for (const auto order : {kRelease, kAcquire}) {
    for (const char* words : {"envelope", "verdict", "envelopes read", "verdicts read"}) {
      EXPECT_CONTAINS(Search(words, Envelopes{6}, {}, 0, {words, order}), " while rank ");
    }
    for (const char* words : {"chunks written", "chunks read"}) {
      EXPECT_CONTAINS(Search(words, Rings{1, 5}, {}, 0, {words, order}), "a chunk while rank ");
    }
  }
}

TEST(ATextIsWholeOrNotThere) {
  EXPECT_EQ(OverwriteText(), "");
}

TEST(ATextThatIsReadWhileItChangesIsFound) {
  for (const auto order : {kRelease, kAcquire}) {
    EXPECT_CONTAINS(OverwriteText({"text", order}), "parts of two texts");
    EXPECT_CONTAINS(OverwriteText({"fence", order}), "parts of two texts");
  }
}
