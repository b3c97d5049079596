// The signals of a step in every order of 2 and 3 ranks: call records that are used again,
// refusals, windows read in place, and numbers at the end of their range.
#include <string>

#include "check.h"
#include "signals/signal_ranks.h"

namespace {

using signals::Data;
using signals::End;
using signals::Group;
using signals::Rank;
using signals::Search;

// So many steps, in which the data lies in the call record.
auto Steps(int steps) {
  return [steps](int rank, Rank* self) {
    for (int i = 0; i < steps; ++i) {
      self->Begin();
      self->Publish(Data(rank, self->number()));
      const End heard = self->AwaitAll([&](int peer, uint64_t record) {
        self->Expect(record == Data(peer, self->number()), "another step's record");
      });
      self->Expect(heard == End::kOk, "a refusal");
      self->Expect(self->Finish() == End::kOk, "a failure");
    }
  };
}

// Rank 0 refuses the second of so many steps, or all ranks do.
auto RefusedSteps(bool all_refuse, int steps = 4) {
  return [all_refuse, steps](int rank, Rank* self) {
    for (int i = 0; i < steps; ++i) {
      const bool refuses = i == 1 && (rank == 0 || all_refuse);
      if (refuses) {
        self->Refuse();
        continue;
      }
      self->Begin();
      self->Publish(Data(rank, self->number()));
      const End heard = self->AwaitAll([&](int peer, uint64_t record) {
        self->Expect(record == Data(peer, self->number()), "another step's record");
      });
      self->Expect((heard == End::kRefused) == (i == 1), "an end that cannot be");
      if (heard == End::kOk) self->Finish();
    }
  };
}

Group Of(int size) {
  Group group;
  group.size = size;
  return group;
}

}  // namespace

TEST(CallRecordsAreUsedAgain) {
  EXPECT_EQ(Search("2 ranks, 4 steps", Of(2), Steps(4), 1000), "");
  EXPECT_EQ(Search("3 ranks, 4 steps", Of(3), Steps(4), 1000), "");
}

TEST(ARefusalIsSeenByAllAndTheNextStepFollows) {
  EXPECT_EQ(Search("2 ranks", Of(2), RefusedSteps(false), 100), "");
  EXPECT_EQ(Search("3 ranks", Of(3), RefusedSteps(false), 1000), "");
  EXPECT_EQ(Search("all refuse", Of(2), RefusedSteps(true), 100), "");
}

TEST(EachOrderOfAHeadThatIsMissingIsFound) {
  for (const auto order : {std::memory_order_release, std::memory_order_acquire}) {
    EXPECT_CONTAINS(Search("head", Of(2), Steps(1), 0, {"head", order}), "rank ");
  }
}

// A step's number has 62 bits. A rank that makes a step each nanosecond needs 146 years for them,
// so nothing is done about the end of the range: all numbers work, and the first that is too large
// ends in the time-out of a wait.
TEST(StepsHaveNumbersUpToTheEndOfTheirRange) {
  constexpr uint64_t kLast = (uint64_t{1} << 62) - 1;
  Group group = Of(2);
  group.steps_before = kLast - 3;
  EXPECT_EQ(Search("the last steps", group, Steps(3), 100), "");
  EXPECT_EQ(Search("a refusal among them", group, RefusedSteps(false, 3), 100), "");
  EXPECT_CONTAINS(Search("one more", group, Steps(4)), "rank 1 waits forever");
}
