#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collops/comm/control/signals.h"
#include "collops/comm/rank_set.h"

namespace collops::control {

// How the living ranks of a group that has ended agree who goes on, in words that all of them still
// share. A roll call goes through epochs. In an epoch the ranks say that they are there; one of
// them proposes the members of the new group, and the first proposal is the decision for all. The
// members meet anew, and when all have arrived the decision is complete. If a member cannot arrive,
// the next epoch begins; so it does when a rank that has heard of a disagreement comes once more.
// One word has the epoch and its phase and is only changed by compare-and-swap, so all ranks see
// the same outcome, whichever of them end meanwhile. What a rank writes after it was stopped for a
// while changes nothing: its epoch is over. tests/cpp/signals explores it.
enum class RollPhase : uint64_t {
  kOpen = 0,
  kDecided = 1,    // the proposal of `winner` counts
  kComplete = 2,   // all members have arrived: for good
  kDisagreed = 3,  // `winner` has found another list of excluded ranks
};

struct RollState {
  uint64_t epoch = 0;
  RollPhase phase = RollPhase::kOpen;
  int winner = 0;

  uint64_t word() const {
    return epoch << 16 | static_cast<uint64_t>(phase) << 8 | static_cast<uint64_t>(winner);
  }
  // A peer wrote the word, so the winner is brought into range.
  static RollState Of(uint64_t word, int size) {
    return {word >> 16, static_cast<RollPhase>(word >> 8 & 3),
            static_cast<int>(word & 0xff) % size};
  }
};

// What one rank writes; a set of ranks is a bit per rank.
template <typename Memory, size_t kSetWords>
struct RollWordsIn {
  using Word = typename Memory::template Atomic<uint64_t>;

  struct Proposal {
    Word members[kSetWords];
    Word token;  // names the meeting; of a disagreement: the rank with the other list
  };
  Word entered;              // 1 + the epoch in which it is there; 0: it is not
  Word arrived;              // 1 + the epoch in whose new group it has arrived
  Word disagreed;            // 1 + the epoch of which it has heard that the lists differ
  Word excluded[kSetWords];  // whom it leaves out; written before `entered`
  Proposal proposals[2];     // by parity of the epoch
};

// One rank's part. `WordsOf(rank)` returns a RollWordsIn&, `HasEnded(rank)` whether the rank can
// never come again. Not thread-safe; waits for nobody.
template <typename Memory, size_t kSetWords, typename WordsOf, typename HasEnded>
class RollCall {
 public:
  using Word = typename Memory::template Atomic<uint64_t>;
  enum class Turn {
    kWait,       // until HasNews()
    kMeet,       // meet members() under token(), then Arrive() or Restart()
    kGoOn,       // all members have arrived
    kLeftOut,    // the others go on without this rank
    kDisagreed,  // the ranks exclude different ones: Leave(), the next roll call is a new one
  };

  RollCall(Word* state, WordsOf words_of, HasEnded has_ended, int rank, const RankSet& excluded,
           int size)
      : state_(*state),
        words_of_(words_of),
        has_ended_(has_ended),
        rank_(rank),
        size_(size),
        excluded_(excluded),
        given_up_(RankSet::None(size)),
        awaited_(RankSet::None(size)),
        members_(RankSet::None(size)) {}

  // What comes next. `late`: the time for what the last Look() said to wait for has passed.
  // `token`: for a proposal. Sets `told` if the others have news.
  Turn Look(bool late, uint64_t token, bool* told) {
    const uint64_t before = word_;
    while (true) {
      Read();
      const bool is_late = late && word_ == before;
      switch (seen_.phase) {
        case RollPhase::kDisagreed:
          if (HasHeard()) {
            if (OthersStillHear() && !is_late) return Turn::kWait;
            *told = Restart() || *told;
            continue;
          }
          if (!ReadDecision()) continue;
          words_of_(rank_).disagreed.store(1 + seen_.epoch, std::memory_order_release);
          return Turn::kDisagreed;
        case RollPhase::kComplete:
          if (!ReadDecision()) continue;
          return arrived_ == 1 + seen_.epoch ? Turn::kGoOn : Turn::kLeftOut;
        case RollPhase::kDecided:
          if (!ReadDecision()) continue;
          if (!members_.Contains(rank_)) return Turn::kLeftOut;
          if (CannotArrive(is_late)) {
            *told = Restart() || *told;
            continue;
          }
          if (arrived_ != 1 + seen_.epoch) return Turn::kMeet;
          if (awaited_.count() > 0) return Turn::kWait;
          *told = Move({seen_.epoch, RollPhase::kComplete, seen_.winner}) || *told;
          continue;
        case RollPhase::kOpen:
          break;
      }
      *told = Enter() || *told;
      const RankSet present = CallTheRoll();
      if (other_ < 0 && is_excluded_) return Turn::kLeftOut;
      if (other_ < 0 && awaited_.count() > 0 && !is_late) return Turn::kWait;
      // They are not waited for again.
      if (other_ < 0) given_up_.AddAll(awaited_);
      Propose(other_ < 0 ? present : excluded_, other_ < 0 ? token : static_cast<uint64_t>(other_));
      const RollPhase next = other_ < 0 ? RollPhase::kDecided : RollPhase::kDisagreed;
      *told = Move({seen_.epoch, next, rank_}) || *told;
    }
  }

  // Whether Look() may find more than the last one, which said kWait. Once true, stays true.
  bool HasNews() const {
    if (HasChanged()) return true;
    for (int r = 0; r < size_; ++r) {
      if (!awaited_.Contains(r)) continue;
      const bool is_open = seen_.phase == RollPhase::kOpen;
      if (is_open ? HasEntered(r) || has_ended_(r) : HasArrived(r) || HasGone(r)) return true;
    }
    return false;
  }
  // Whether the meeting is in vain: the phase is over, or a member has ended that has not arrived.
  bool MeetsInVain() const {
    if (HasChanged()) return true;
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && members_.Contains(r) && !HasArrived(r) && HasGone(r)) return true;
    }
    return false;
  }

  // This rank has met the members.
  void Arrive() {
    words_of_(rank_).arrived.store(1 + seen_.epoch, std::memory_order_release);
    arrived_ = 1 + seen_.epoch;
  }
  // The members cannot all meet: the next epoch begins, unless the decision is complete.
  bool Restart() { return Move({seen_.epoch + 1, RollPhase::kOpen, 0}); }
  // This rank gives up. False: too late, the others go on with it.
  bool Leave() {
    words_of_(rank_).entered.store(0, std::memory_order_release);
    while (true) {
      Read();
      if (seen_.phase == RollPhase::kOpen || seen_.phase == RollPhase::kDisagreed) return true;
      if (!ReadDecision()) continue;
      if (!members_.Contains(rank_)) return true;
      if (seen_.phase == RollPhase::kComplete) return arrived_ != 1 + seen_.epoch;
      if (Restart()) return true;
    }
  }

  const RollState& seen() const { return seen_; }
  const RankSet& members() const { return members_; }
  // Of a decision the name of its meeting; of a disagreement the rank whose list is not members().
  uint64_t token() const { return token_; }
  // Whom a rank has excluded, for messages.
  RankSet ExcludedBy(int rank) const { return LoadSet(words_of_(rank).excluded); }
  // The proposal that `seen()` names; false if it counts no more.
  bool ReadDecision() {
    auto& proposal = words_of_(seen_.winner).proposals[seen_.epoch & 1];
    members_ = LoadSet(proposal.members);
    token_ = proposal.token.load(std::memory_order_acquire);
    // The winner writes there again in a later epoch only, which this load then sees.
    return !HasChanged();
  }

 private:
  void Read() {
    word_ = state_.load(std::memory_order_acquire);
    seen_ = RollState::Of(word_, size_);
  }
  bool HasChanged() const { return state_.load(std::memory_order_acquire) != word_; }
  bool Move(const RollState& next) {
    uint64_t seen = word_;
    return state_.compare_exchange_strong(seen, next.word());
  }
  RankSet LoadSet(const Word* words) const {
    RankSet set = RankSet::None(size_);
    for (int w = 0; w * 64 < size_; ++w) {
      const uint64_t bits = words[w].load(std::memory_order_acquire);
      for (int r = w * 64; r < size_ && r < w * 64 + 64; ++r) {
        if ((bits >> (r % 64) & 1) != 0) set.Add(r);
      }
    }
    return set;
  }
  void StoreSet(const RankSet& set, Word* words) const {
    for (int w = 0; w * 64 < size_; ++w) {
      uint64_t bits = 0;
      for (int r = w * 64; r < size_ && r < w * 64 + 64; ++r) {
        if (set.Contains(r)) bits |= uint64_t{1} << (r % 64);
      }
      words[w].store(bits, std::memory_order_release);
    }
  }
  bool HasEntered(int rank) const {
    return words_of_(rank).entered.load(std::memory_order_acquire) == 1 + seen_.epoch;
  }
  bool HasHeard() const {
    return words_of_(rank_).disagreed.load(std::memory_order_acquire) == 1 + seen_.epoch;
  }
  // Sets which ranks are awaited because they have not left a call that is told that lists differ:
  // in the next epoch their lists would differ again.
  bool OthersStillHear() {
    awaited_ = RankSet::None(size_);
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ && HasEntered(r) && !has_ended_(r)) awaited_.Add(r);
    }
    return awaited_.count() > 0;
  }
  bool HasArrived(int rank) const {
    return words_of_(rank).arrived.load(std::memory_order_acquire) == 1 + seen_.epoch;
  }
  // Of a member: it has ended, given up, or begun the next epoch.
  bool HasGone(int rank) const { return has_ended_(rank) || !HasEntered(rank); }
  // This rank is there in the epoch that it has seen; false if it has said so before.
  bool Enter() {
    if (entered_ == 1 + seen_.epoch) return false;
    auto& own = words_of_(rank_);
    if (entered_ == 0) StoreSet(excluded_, own.excluded);
    own.entered.store(1 + seen_.epoch, std::memory_order_release);
    entered_ = 1 + seen_.epoch;
    return true;
  }
  // Returns who is there, and sets who is awaited, whose list differs, and whether a list has this
  // rank. A list of none, of a rank that is excluded, is no other list: it knows nothing of it.
  RankSet CallTheRoll() {
    RankSet present = RankSet::None(size_);
    awaited_ = present;
    other_ = -1;
    is_excluded_ = false;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) {
        present.Add(r);
      } else if (HasEntered(r)) {
        const RankSet list = ExcludedBy(r);
        const bool excludes_me = list.Contains(rank_) && excluded_.count() == 0;
        const bool knows_nothing = excluded_.Contains(r) && list.count() == 0;
        is_excluded_ = is_excluded_ || excludes_me;
        if (other_ < 0 && !excludes_me && !knows_nothing && Differ(list, excluded_)) other_ = r;
        if (!excluded_.Contains(r) && !has_ended_(r)) present.Add(r);
      } else if (!excluded_.Contains(r) && !given_up_.Contains(r) && !has_ended_(r)) {
        awaited_.Add(r);
      }
    }
    return present;
  }
  bool Differ(const RankSet& a, const RankSet& b) const {
    for (int r = 0; r < size_; ++r) {
      if (a.Contains(r) != b.Contains(r)) return true;
    }
    return false;
  }
  void Propose(const RankSet& members, uint64_t token) {
    auto& proposal = words_of_(rank_).proposals[seen_.epoch & 1];
    StoreSet(members, proposal.members);
    proposal.token.store(token, std::memory_order_release);
  }
  // Sets which members are awaited. Whether one of them cannot come any more.
  bool CannotArrive(bool late) {
    awaited_ = RankSet::None(size_);
    for (int r = 0; r < size_; ++r) {
      if (r == rank_ || !members_.Contains(r) || HasArrived(r)) continue;
      if (HasGone(r)) return true;
      awaited_.Add(r);
    }
    return late && awaited_.count() > 0;
  }

  Word& state_;
  const WordsOf words_of_;
  const HasEnded has_ended_;
  const int rank_;
  const int size_;
  const RankSet excluded_;
  RankSet given_up_;
  RankSet awaited_;
  RankSet members_;
  uint64_t word_ = 0;
  RollState seen_;
  uint64_t token_ = 0;
  int other_ = -1;
  bool is_excluded_ = false;
  uint64_t entered_ = 0;  // as it has written
  uint64_t arrived_ = 0;
};

// Of a board, for as many ranks as a host may have.
constexpr size_t kRollSetWords = 2;
using RollWords = RollWordsIn<MachineMemory, kRollSetWords>;

}  // namespace collops::control
