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

}  // namespace collops::control
