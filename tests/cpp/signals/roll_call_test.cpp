// Who goes on when a group has ended: whichever rank ends at whichever access to the words, all
// that are left get the same new group, and nobody waits forever. The functions of
// control/roll_call.h are the library's own; a meeting is one access here. COLLOPS_ALL_FAULTS=1: of
// three ranks one ends too, which takes minutes.
#include "collops/comm/control/roll_call.h"

#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "signals/model_words.h"

namespace {

using collops::RankSet;
using signals::Explorer;
using signals::ModelMemory;
using signals::Weakened;
using signals::Word;

using Words = collops::control::RollWordsIn<ModelMemory, 1>;

// What happens in a search.
struct Scene {
  int size = 2;
  int living = 0;  // the ranks from there on have ended before; 0: none has
  bool one_ends = false;
  int fails = -1;     // the rank whose first meeting fails
  int hurries = -1;   // the rank for which it is always late
  int gives_up = -1;  // the rank that gives up before it meets
  std::vector<std::vector<int>> excluded = {{}, {}, {}};
  int again = 0;  // as often a rank that is told no comes once more, and excludes nobody
};

struct WordsOf {
  std::deque<Words>* words;
  Words& operator()(int rank) const { return (*words)[static_cast<size_t>(rank)]; }
};
struct HasEnded {
  std::deque<Word<uint64_t>>* ended;
  bool operator()(int rank) const {
    return (*ended)[static_cast<size_t>(rank)].load(std::memory_order_acquire) != 0;
  }
};
using RollCall = collops::control::RollCall<ModelMemory, 1, WordsOf, HasEnded>;
using Turn = RollCall::Turn;

constexpr uint64_t kLeftOut = 1;
constexpr uint64_t kDisagreed = 2;
constexpr uint64_t kGaveUp = 3;
constexpr uint64_t kGoesOn = 4;  // and the members and the epoch

class Group {
 public:
  explicit Group(const Scene& scene) : scene_(scene) {
    Explorer& explorer = Explorer::Current();
    explorer.Name("state", signals::kAnyRank);
    state_.emplace_back();
    for (int r = 0; r < scene.size; ++r) {
      explorer.Name("words", r);
      words_.emplace_back();
      outcomes_.emplace_back();
      explorer.Name("ended", scene.one_ends ? signals::kAnyRank : signals::kNobody);
      ended_.emplace_back();
      if (scene.living > 0 && r >= scene.living) {
        ended_.back().Initialise(1);
        continue;
      }
      if (scene.one_ends) ended_.back().MayBeSetByTheEndOf(r);
    }
  }

  void Run(int rank) { Compare(rank, CallTheRoll(rank)); }

 private:
  uint64_t CallTheRoll(int rank) {
    std::optional<RollCall> call;
    const auto begin = [&](const std::vector<int>& list) {
      RankSet excluded = RankSet::None(scene_.size);
      for (const int r : list) excluded.Add(r);
      call.emplace(&state_[0], WordsOf{&words_}, HasEnded{&ended_}, rank, excluded, scene_.size);
    };
    begin(scene_.excluded[static_cast<size_t>(rank)]);
    int again = scene_.again;
    bool fails = rank == scene_.fails;
    bool told = false;
    uint64_t arrived = 0;
    // It waits for nobody, but not for ever: the next deadline is as far off as the last one.
    int hurries = rank == scene_.hurries ? 1 : 0;
    bool is_late = false;
    uint64_t was_late = 0;
    while (true) {
      RollCall& roll = *call;
      // What Look() does depends on the memory, and on what this rank has written.
      if (is_late) was_late = signals::Mix(was_late + 1, roll.seen().word());
      Explorer::Current().Forget(
          signals::Mix(was_late, (arrived * 8 + static_cast<uint64_t>(hurries + 1)) * 16 +
                                     static_cast<uint64_t>(again + 1) * 4 + (fails ? 2 : 0) +
                                     (is_late ? 1 : 0)));
      const Turn turn = roll.Look(is_late, 10U + static_cast<uint64_t>(rank), &told);
      is_late = false;
      switch (turn) {
        case Turn::kWait:
          is_late = hurries > 0 || Await(roll);
          if (hurries > 0) --hurries;
          break;
        case Turn::kMeet:
          if (rank == scene_.gives_up && roll.Leave()) return kGaveUp;
          if (fails) {
            fails = false;
            roll.Restart();
          } else {
            roll.Arrive();
            arrived = 1 + roll.seen().epoch;
          }
          break;
        case Turn::kGoOn:
          return kGoesOn | MembersOf(roll) << 8 | roll.seen().epoch << 16 | roll.token() << 24;
        case Turn::kLeftOut:
        case Turn::kDisagreed:
          if (again-- == 0) return turn == Turn::kLeftOut ? kLeftOut : kDisagreed;
          roll.Leave();
          begin({});
          break;
      }
    }
  }
  // True: for another rank it waits in vain, until the deadline has passed.
  bool Await(const RollCall& roll) {
    bool in_vain = false;
    Explorer::Current().Await([&] {
      in_vain = false;
      if (roll.HasNews()) return true;
      in_vain = scene_.gives_up >= 0 && outcomes_[static_cast<size_t>(scene_.gives_up)].load(
                                            std::memory_order_acquire) != 0;
      return in_vain;
    });
    return in_vain;
  }
  uint64_t MembersOf(const RollCall& roll) const {
    uint64_t bits = 0;
    for (int r = 0; r < scene_.size; ++r) {
      if (roll.members().Contains(r)) bits |= uint64_t{1} << r;
    }
    return bits;
  }

  void Compare(int rank, uint64_t own) {
    Explorer& explorer = Explorer::Current();
    outcomes_[static_cast<size_t>(rank)].store(own, std::memory_order_release);
    bool may_leave_out = scene_.hurries >= 0 || scene_.gives_up >= 0;
    for (const std::vector<int>& list : scene_.excluded) {
      may_leave_out = may_leave_out || (!list.empty() && scene_.again == 0);
    }
    explorer.Expect(may_leave_out || own != kLeftOut, "a rank that came was left out");
    for (int r = 0; r < scene_.size; ++r) {
      const bool is_there = (own >> (8 + r) & 1) != 0;
      const bool has_ended = ended_[static_cast<size_t>(r)].Last() != 0;
      const bool must_be = r == rank || !(has_ended || may_leave_out);
      explorer.Expect((own & 7) != kGoesOn || is_there || !must_be, "a member is missing");
      if (r == rank) continue;
      const uint64_t other = outcomes_[static_cast<size_t>(r)].Last();
      if (other == 0) continue;
      const bool both_go_on = (own & 7) == kGoesOn && (other & 7) == kGoesOn;
      explorer.Expect(!both_go_on || own == other, "two new groups");
      const bool has_other = (own & 7) == kGoesOn && is_there;
      explorer.Expect(!has_other || (other & 7) == kGoesOn, "a member that does not go on");
      const bool one_knows = own == kDisagreed || other == kDisagreed;
      explorer.Expect(!one_knows || ((own & 7) <= kDisagreed && (other & 7) <= kDisagreed),
                      "not all know a disagreement");
    }
  }

  const Scene scene_;
  std::deque<Word<uint64_t>> state_;
  std::deque<Words> words_;
  std::deque<Word<uint64_t>> ended_;
  std::deque<Word<uint64_t>> outcomes_;
};

std::string Search(const char* what, const Scene& scene, const Weakened& weakened = {}) {
  // Of three ranks every order is searched, and not also every older value.
  Explorer explorer(weakened, scene.size > 2 && scene.living == 0);
  Group group(scene);
  std::vector<Explorer::Program> programs;
  const int living = scene.living > 0 ? scene.living : scene.size;
  for (int r = 0; r < living; ++r) programs.push_back([&group, r] { group.Run(r); });
  return Explore(&explorer, what, programs, 1);
}

Scene Of(int size) {
  Scene scene;
  scene.size = size;
  return scene;
}

}  // namespace

TEST(ThreeRanksAgree) {
  EXPECT_EQ(Search("3 ranks", Of(3)), "");
}

TEST(ADeathOfOneOfThree) {
  if (std::getenv("COLLOPS_ALL_FAULTS") == nullptr) return;
  Scene scene = Of(3);
  scene.one_ends = true;
  EXPECT_EQ(Search("3 ranks, one ends", scene), "");
}

TEST(TwoRanksAgree) {
  EXPECT_EQ(Search("2 ranks", Of(2)), "");
}

TEST(ADeathOfOneOfTwo) {
  Scene scene = Of(2);
  scene.one_ends = true;
  EXPECT_EQ(Search("2 ranks, one ends", scene), "");
}

TEST(AMeetingThatFailsOnOneRank) {
  Scene scene = Of(2);
  scene.fails = 0;
  EXPECT_EQ(Search("2 ranks", scene), "");
}

TEST(ARankInAHurry) {
  Scene scene = Of(2);
  scene.hurries = 0;
  EXPECT_EQ(Search("2 ranks", scene), "");
}

TEST(ARankThatGivesUp) {
  Scene scene = Of(2);
  scene.gives_up = 0;
  EXPECT_EQ(Search("2 ranks", scene), "");
}

// Of the third rank, which has ended before, one list has the number.
TEST(ListsThatDiffer) {
  Scene scene = Of(3);
  scene.living = 2;
  scene.excluded = {{2}, {}};
  EXPECT_EQ(Search("2 ranks, their lists differ", scene), "");
  scene.again = 1;
  EXPECT_EQ(Search("2 ranks, their lists differ at first", scene), "");
  scene.one_ends = true;
  EXPECT_EQ(Search("2 ranks, their lists differ at first, one ends", scene), "");
}

TEST(ARankOfThreeIsExcluded) {
  Scene scene = Of(3);
  scene.excluded = {{2}, {2}, {}};
  EXPECT_EQ(Search("3 ranks, one is excluded", scene), "");
}

TEST(ListsOfThreeThatDiffer) {
  Scene scene = Of(3);
  scene.excluded = {{2}, {}, {}};
  EXPECT_EQ(Search("3 ranks, their lists differ", scene), "");
}
