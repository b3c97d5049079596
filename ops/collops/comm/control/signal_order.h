#pragma once

#include <atomic>
#include <cstdint>

#include "collops/comm/control/signal_head.h"

// The words by which the ranks of one host tell each other how far they are, and that they have
// failed, with the order of each access. The functions are templates over the memory:
// tests/cpp/signals explores them in a model of weakly ordered memory.
namespace collops::control {

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
