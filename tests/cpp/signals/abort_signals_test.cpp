// Windows that peers read in place, and calls that end early: a rank whose peer has overwritten
// what it was reading sees the failure before it returns.
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "check.h"
#include "signals/signal_ranks.h"

namespace {

using signals::Data;
using signals::End;
using signals::Explorer;
using signals::Group;
using signals::Plain;
using signals::Rank;
using signals::SearchShared;
using signals::Word;

constexpr auto kRelaxed = std::memory_order_relaxed;

Group Of(int size, bool fails) {
  Group group;
  group.size = size;
  group.fails = fails;
  return group;
}

// Rank 0's window, which its peers read in place in two calls; it changes between them.
struct WindowCalls {
  explicit WindowCalls(const Group& /*group*/) : window("the window") {}

  void operator()(int rank, Rank* self) const {
    for (int step = 0; step < 2; ++step) {
      if (rank == 0) window.Write(Data(0, self->number() + 1));
      self->Begin();
      self->Publish(0);
      self->AwaitAll([](int, uint64_t) {});
      if (rank == 0) {
        self->Expect(self->FinishTogether() == End::kOk, "a failure");
      } else {
        self->Expect(window.Read() == Data(0, self->number()), "the wrong bytes");
        self->Expect(self->Finish() == End::kOk, "a failure");
      }
    }
  }

  Plain window;
};

// A call in which rank 0's peers read its window, which ends early for rank 0: it fails in its
// call, or sees the failure of the last rank. Then its program overwrites the window. The bytes of
// the window are read while they change, so they are a word.
struct EarlyEnd {
  explicit EarlyEnd(const Group& group) {
    Explorer::Current().Name("window", 0);
    window = std::make_unique<Word<uint64_t>>();
    for (int r = 0; r < group.size; ++r) reasons.emplace_back("the reason");
  }

  void operator()(int rank, Rank* self) const {
    const bool other_fails = self->group().size == 3 && rank == 2;
    bool good = self->Begin();
    if (good) {
      self->Publish(0);
      good = self->AwaitAll([](int, uint64_t) {}) == End::kOk;
    }
    if (other_fails) return Fail(rank, self);
    if (rank == 0) return OwnWindow(good && self->group().size == 3, self);
    uint64_t read = 0;
    if (good) {
      read = window->load(kRelaxed);
      good = self->Finish() == End::kOk;
    }
    self->Expect(!good || read == 0, "good bytes of a window that was overwritten");
    if (!good) ReadReason(self);
  }
  // The rank waits for its readers, or gives up.
  void OwnWindow(bool waits, Rank* self) const {
    if (waits && self->FinishTogether() == End::kOk) return;
    Fail(0, self);
    window->store(1, kRelaxed);
  }
  void Fail(int rank, Rank* self) const {
    self->Fail(self->number(), [&] { reasons[static_cast<size_t>(rank)].Write(7); });
    ReadReason(self);
  }
  void ReadReason(const Rank* self) const {
    const int reporter = self->Reporter();
    self->Expect(reporter >= 0, "a failure of no rank");
    self->Expect(reasons[static_cast<size_t>(reporter)].Read() == 7, "the wrong reason");
  }

  std::unique_ptr<Word<uint64_t>> window;
  std::deque<Plain> reasons;
};

// Rank 0 fails in the second step, and rank 1 in the first. Rank 2, and rank 1 if `only_later`, end
// the first step well unless it failed there, and never end the second one well.
struct TwoFailures {
  explicit TwoFailures(const Group& group) {
    for (int r = 0; r < group.size; ++r) reasons.emplace_back("the reason");
  }

  void operator()(int rank, Rank* self) const {
    const bool fails_first = rank == 1 && self->group().size == 3;
    for (uint64_t step = 1; step <= 2; ++step) {
      bool good = self->Begin();
      if (good && step == 2 && rank == 0) return Fail(rank, self);
      if (good) {
        self->Publish(0);
        good = self->AwaitAll([](int, uint64_t) {}) == End::kOk;
      }
      if (good && step == 1 && fails_first) return Fail(rank, self);
      if (good) good = self->Finish() == End::kOk;
      if (!good) return SeeFailure(self);
      self->Expect(step == 1, "a good end of a step that a rank has not made");
    }
  }
  void Fail(int rank, Rank* self) const {
    self->Fail(self->number(), [&] { reasons[static_cast<size_t>(rank)].Write(7); });
    SeeFailure(self);
  }
  // Only a failure in this step or an earlier one may be seen, and its reason is whole.
  void SeeFailure(const Rank* self) const {
    const int reporter = self->Reporter();
    self->Expect(reporter >= 0, "a failure of no rank");
    self->Expect(self->number() == 2 || reporter == 1, "the failure of a later step");
    self->Expect(reasons[static_cast<size_t>(reporter)].Read() == 7, "the wrong reason");
  }

  std::deque<Plain> reasons;
};

}  // namespace

TEST(AWindowIsReadInPlace) {
  EXPECT_EQ(SearchShared<WindowCalls>("2 ranks", Of(2, false), 100), "");
  EXPECT_EQ(SearchShared<WindowCalls>("3 ranks", Of(3, false), 1e6), "");
}

TEST(AReaderSeesTheFailureOfTheRankWhoseWindowItReads) {
  EXPECT_EQ(SearchShared<EarlyEnd>("2 ranks", Of(2, true), 100), "");
}

TEST(AReaderSeesTheFailureThatEndedTheCallOfTheRankWhoseWindowItReads) {
  EXPECT_EQ(SearchShared<EarlyEnd>("3 ranks", Of(3, true), 1e6), "");
}

TEST(EachOrderOfAFailureThatIsMissingIsFound) {
  for (const auto fence : {std::memory_order_acquire, std::memory_order_seq_cst}) {
    EXPECT_CONTAINS(SearchShared<EarlyEnd>("fence", Of(2, true), 0, {"fence", fence}),
                    "good bytes of a window that was overwritten");
  }
  for (const auto order : {std::memory_order_release, std::memory_order_acquire}) {
    EXPECT_CONTAINS(SearchShared<EarlyEnd>("failed rank", Of(2, true), 0, {"failed rank", order}),
                    "rank 1 reads the reason");
  }
}

TEST(AFailureEndsItsStepAndNoEarlierOne) {
  EXPECT_EQ(SearchShared<TwoFailures>("one failure", Of(2, true), 100), "");
  EXPECT_EQ(SearchShared<TwoFailures>("two failures", Of(3, true), 1e6), "");
}
