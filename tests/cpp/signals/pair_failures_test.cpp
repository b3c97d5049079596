// A message whose body the receiver reads in the sender's window, while the sender gives up, the
// receiver fails later, or a third rank fails. What pairs/pair_lane.cpp does is
// repeated here; the functions of signal_order.h and pair_order.h are the library's own.
#include <deque>
#include <string>
#include <vector>

#include "check.h"
#include "collops/comm/control/signals.h"
#include "signals/pair_ends.h"

namespace {

using signals::Expect;
using signals::Explorer;
using signals::Judgement;
using signals::ModelMemory;
using signals::PairBoard;
using signals::PairReceiver;
using signals::PairSender;
using signals::PairSetup;
using signals::Plain;
using signals::Weakened;
using signals::Word;
using FailureOrder = collops::control::FailureOrder<ModelMemory>;

enum class Failing {
  kSenderGivesUp,
  kReceiverLater,  // once the message is over for it
  kThirdRank,
};

// A failure in the message counts for step 1, one of the receiver after it for step 2.
constexpr uint64_t kInMessage = 1;
constexpr uint64_t kLater = 2;
constexpr uint64_t kAnyStep = UINT64_MAX;

struct Lane {
  explicit Lane(Failing of) : failing(of), pair(PairSetup{}) {
    Explorer& explorer = Explorer::Current();
    explorer.Name("window", signals::kSender);
    window.emplace_back();
    explorer.Name("failed rank", signals::kAnyRank);
    failed_rank.emplace_back();
    for (int r = 0; r < (of == Failing::kThirdRank ? 3 : 2); ++r) {
      explorer.Name("failed step", r);
      failed_steps.emplace_back();
      reasons.emplace_back("the reason");
    }
  }

  // Messenger::Failed(), PairLane::FinishTaken() and Endpoint::PublishFailure().
  bool Failed() const { return FailureOrder::HasFailed(failed_rank[0], kAnyStep, StepOf()); }
  bool FailedMeanwhile() const {
    return FailureOrder::HasFailedMeanwhile(failed_rank[0], kAnyStep, StepOf());
  }
  void Fail(int rank, uint64_t step) {
    const auto own = static_cast<size_t>(rank);
    FailureOrder::Publish(&failed_rank[0], &failed_steps[own], rank, step, StepOf(),
                          [&] { reasons[own].Write(7); });
  }
  // The step of the failure that counts, whose reason is whole.
  uint64_t FailedStep() const {
    const uint32_t failed = failed_rank[0].load(std::memory_order_acquire);
    Expect(failed != 0 && reasons[failed - 1].Read() == 7, "a failure without its reason");
    return StepOf()(failed);
  }

  void Send() {
    PairSender self(&pair);
    Expect(self.Post(), "no room");
    const bool gives_up = failing == Failing::kSenderGivesUp;
    if (!gives_up && AwaitVerdict(&self)) return window[0].store(1, std::memory_order_relaxed);
    const bool seen = !gives_up && FailedStep() == kLater;
    Expect(!seen, "no verdict of a receiver that gave one");
    Fail(signals::kSender, kInMessage);
    window[0].store(1, std::memory_order_relaxed);
  }
  // PairLane::Move(), again and again: verdicts, then failures, then verdicts once more.
  bool AwaitVerdict(PairSender* self) const {
    uint64_t number = 0;
    Judgement judgement = Judgement::kGo;
    while (!self->NextVerdict(&number, &judgement)) {
      if (Failed()) return self->NextVerdict(&number, &judgement);
      Explorer::Current().Await([&] { return self->HasVerdict() || Failed(); });
    }
    return true;
  }
  void Receive() {
    PairReceiver self(&pair);
    Explorer::Current().Await([&] { return self.HasEnvelope() || Failed(); });
    bool good = self.NextEnvelope(false);
    if (good) {
      const uint64_t body = window[0].load(std::memory_order_relaxed);
      good = !FailedMeanwhile();
      Expect(!good || body == 0, "good bytes of a window that was overwritten");
    }
    if (good) self.PostVerdict(self.read(), Judgement::kDone);
    if (failing == Failing::kReceiverLater || !good) {
      Fail(signals::kReceiver, good ? kLater : kInMessage);
    }
  }

  Failing failing;
  PairBoard pair;
  std::deque<Word<uint64_t>> window;
  std::deque<Word<uint32_t>> failed_rank;
  std::deque<Word<uint64_t>> failed_steps;
  std::deque<Plain> reasons;

 private:
  struct Steps {
    const Lane* lane;
    uint64_t operator()(uint32_t failed) const {
      return lane->failed_steps[failed - 1].load(std::memory_order_relaxed);
    }
  };
  Steps StepOf() const { return {this}; }
};

std::string Search(const char* what, Failing failing, double least_executions = 0,
                   const Weakened& weakened = {}) {
  Explorer explorer(weakened);
  Lane lane(failing);
  std::vector<Explorer::Program> programs = {[&] { lane.Send(); }, [&] { lane.Receive(); }};
  if (failing == Failing::kThirdRank) programs.emplace_back([&] { lane.Fail(2, kInMessage); });
  return Explore(&explorer, what, programs, least_executions);
}

constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr const char* kOverwritten = "good bytes of a window that was overwritten";

}  // namespace

TEST(AReceiverSeesTheFailureOfTheSenderWhoseWindowItReads) {
  EXPECT_EQ(Search("gives up", Failing::kSenderGivesUp, 10), "");
}

TEST(AVerdictThatCameBeforeAFailureCounts) {
  EXPECT_EQ(Search("fails later", Failing::kReceiverLater, 10), "");
}

TEST(AReceiverSeesTheFailureThatEndedTheMessageOfTheSender) {
  EXPECT_EQ(Search("a third rank", Failing::kThirdRank, 100), "");
}

TEST(EachOrderOfAFailureThatIsMissingIsFound) {
  for (const auto fence : {kAcquire, std::memory_order_seq_cst}) {
    EXPECT_CONTAINS(Search("fence", Failing::kSenderGivesUp, 0, {"fence", fence}), kOverwritten);
  }
  for (const auto order : {kRelease, kAcquire}) {
    const Weakened failed_rank = {"failed rank", order};
    EXPECT_CONTAINS(Search("failed rank", Failing::kReceiverLater, 0, failed_rank), "rank 0");
  }
}
