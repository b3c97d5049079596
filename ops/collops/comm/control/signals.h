#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collops/core/fence.h"

namespace collops::control {

// The first bytes of the first signal of a step, by which the ranks agree on a call. A step is one
// agreement and the data that moves under it. One rank writes the head and stores `step` last, with
// release; a reader that loads `step` first, with acquire, sees the other fields (signal_order.h).
template <typename Memory>
struct SignalHeadIn {
  typename Memory::template Atomic<uint64_t> step;     // its number << kKindBits | HeadKind
  typename Memory::template Atomic<uint64_t> digest;   // hash of what must be equal on every rank
  typename Memory::template Atomic<uint64_t> balance;  // of what adds up to 0 over all ranks
};
using SignalHead = SignalHeadIn<MachineMemory>;

enum class HeadKind : uint64_t {
  kCall = 0,
  kRefusal = 1,   // this rank refuses the step; its reason is on the board
  kCarried = 2,   // a call whose agreement a HeadCarrier takes to the other hosts
  kChanging = 3,  // with the number of the step before last: the next head is being written
};
// A step's number has 62 bits: a rank that makes a step each nanosecond needs 146 years for them.
constexpr int kKindBits = 2;

inline uint64_t StepWord(uint64_t number, HeadKind kind) {
  return (number << kKindBits) | static_cast<uint64_t>(kind);
}
inline uint64_t NumberOf(uint64_t word) {
  return word >> kKindBits;
}
inline HeadKind KindOf(uint64_t word) {
  return static_cast<HeadKind>(word & ((1U << kKindBits) - 1));
}
inline bool IsRefusal(uint64_t word) {
  return KindOf(word) == HeadKind::kRefusal;
}
inline bool IsCall(uint64_t word) {
  return KindOf(word) == HeadKind::kCall || KindOf(word) == HeadKind::kCarried;
}

// What a rank writes for a step lies in one of two places, by the parity of the step. A rank can be
// one step ahead of a reader, never two, because every step waits for the heads of all ranks.
constexpr uint64_t ParityOf(uint64_t step) {
  return step & 1;
}

// Where the heads of all ranks lie.
struct HeadPlaces {
  std::byte* base = nullptr;
  int64_t rank_stride = 0;
  int64_t parity_stride = 0;

  SignalHead& At(int rank, uint64_t number) const {
    return *reinterpret_cast<SignalHead*>(base + rank * rank_stride +
                                          static_cast<int64_t>(ParityOf(number)) * parity_stride);
  }
};

// The words by which the ranks of one host tell each other how far they are, and that they have
// failed, with the order of each access. The functions are templates over the memory:
// tests/cpp/signals explores them in a model of weakly ordered memory.
// Publishes a head. A rank that sees it with HasBegun() sees all that this rank wrote before.
template <typename Memory>
void PublishHead(SignalHeadIn<Memory>* head, uint64_t word, uint64_t digest, uint64_t balance) {
  head->digest.store(digest, std::memory_order_relaxed);
  head->balance.store(balance, std::memory_order_relaxed);
  head->step.store(word, std::memory_order_release);
}

// As PublishHead(), for a step that this rank refuses: the head says no more.
template <typename Memory>
void PublishRefusal(SignalHeadIn<Memory>* head, uint64_t number) {
  head->step.store(StepWord(number, HeadKind::kRefusal), std::memory_order_release);
}

template <typename Memory>
bool HasBegun(const SignalHeadIn<Memory>& head, uint64_t step) {
  return NumberOf(head.step.load(std::memory_order_acquire)) >= step;
}

// `finished` is the last step in which a rank has read and written all.
template <typename Word>
void PublishFinished(Word* finished, uint64_t step) {
  finished->store(step, std::memory_order_release);
}

// A rank that sees this may write what the other rank has read in the step.
template <typename Word>
bool HasFinished(const Word& finished, uint64_t step) {
  return finished.load(std::memory_order_acquire) >= step;
}

// Which failure has ended the group: `failed_rank` is 0, or 1 + the rank whose failure counts.
// `step_of(failed)` loads the step in which that rank has failed, relaxed.
template <typename Memory>
struct FailureOrder {
  using FailedRank = typename Memory::template Atomic<uint32_t>;
  using FailedStep = typename Memory::template Atomic<uint64_t>;

  // Whether the group has failed in `step` or an earlier one.
  template <typename StepOf>
  static bool HasFailed(const FailedRank& failed_rank, uint64_t step, const StepOf& step_of) {
    const uint32_t failed = failed_rank.load(std::memory_order_acquire);
    return failed != 0 && step_of(failed) <= step;
  }

  // As HasFailed(), after the last read of the peers' memory: a rank that has read what a peer
  // wrote after its failure sees that failure.
  template <typename StepOf>
  static bool HasFailedMeanwhile(const FailedRank& failed_rank, uint64_t step,
                                 const StepOf& step_of) {
    Memory::Fence(std::memory_order_acquire);
    return HasFailed(failed_rank, step, step_of);
  }

  // Publishes the failure of `rank` in `step`, unless one in that step or earlier is known; of two
  // failures the one in the earlier step counts. `write_reason` writes what readers of the failure
  // read. After this the rank may overwrite memory that its peers may still be reading.
  template <typename StepOf, typename WriteReason>
  static void Publish(FailedRank* failed_rank, FailedStep* own_step, int rank, uint64_t step,
                      const StepOf& step_of, const WriteReason& write_reason) {
    uint32_t first = failed_rank->load(std::memory_order_acquire);
    if (first == 0 || step_of(first) > step) {
      own_step->store(step, std::memory_order_relaxed);
      write_reason();
    }
    while (first == 0 || step_of(first) > step) {
      if (failed_rank->compare_exchange_strong(first, static_cast<uint32_t>(rank) + 1)) break;
    }
    // A peer that reads what this rank writes next must see the failure, also if it is another's.
    Memory::Fence(std::memory_order_seq_cst);
  }
};

}  // namespace collops::control
