#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/peers/region.h"

// How ranks tell each other that something is there. Every number holds the step for which it was
// written, so nothing is ever reset, and what an earlier step left behind is never taken for news.
namespace collops::cuda {

// What a block that waits for long tells the host now and then: the step, and a number that
// changes.
COLLOPS_DEVICE inline uint64_t WaitWord(uint64_t step, uint32_t count) {
  return step << 32 | count;
}

// Looks until `ready()`; false if the host ends the waits of the group meanwhile.
template <class Ready>
COLLOPS_DEVICE bool WaitUntil(const Group& group, Ready ready) {
  // The host's memory is far away: it is looked at now and then.
  constexpr uint32_t kLooks = 64;
  for (uint32_t look = 1; !ready(); ++look) {
    if (look % kLooks == 0) {
      if (LoadSignal(group.stop) != 0) return false;
      StoreSignal(group.wait, WaitWord(LoadSignal(&group.Own()->step) + 1, look / kLooks));
    }
    Pause();
  }
  return true;
}

// A word of a cell: 4 bytes of data, and 4 bytes that say for which step, never 0, as in a word
// that nobody has written. They are the same again after 2^32 - 1 steps.
COLLOPS_DEVICE inline uint64_t CellWord(uint64_t step, uint32_t data) {
  return (step % 0xffffffffu + 1) << 32 | data;
}
COLLOPS_DEVICE inline bool IsOfStep(uint64_t word, uint64_t step) {
  return word >> 32 == step % 0xffffffffu + 1;
}

// What the head of a cell tells: the terms of the call, which must agree, and where its writer has
// the data for the cell's owner, if addresses are common. A number is two words.
struct Head {
  uint64_t digest;
  uint64_t balance;
  uint64_t address;
};
inline constexpr int kHeadHalves = 6;

COLLOPS_DEVICE inline void StoreHead(uint64_t* cell, uint64_t step, const Head& head) {
  const uint64_t numbers[] = {head.digest, head.balance, head.address};
  for (int i = 0; i < kHeadHalves; ++i) {
    StoreSignal(cell + i, CellWord(step, static_cast<uint32_t>(numbers[i / 2] >> i % 2 * 32)));
  }
}

// All words are looked at at once.
COLLOPS_DEVICE inline bool WaitForHead(const Group& group, const uint64_t* cell, uint64_t step,
                                       Head* head) {
  uint64_t words[kHeadHalves];
  const auto is_here = [&] {
    for (int i = 0; i < kHeadHalves; ++i) words[i] = LoadSignal(cell + i);
    bool all = true;
    for (int i = 0; i < kHeadHalves; ++i) all &= IsOfStep(words[i], step);
    return all;
  };
  if (!WaitUntil(group, is_here)) return false;
  const auto number = [&](int i) { return (words[i] & 0xffffffffu) | words[i + 1] << 32; };
  *head = {number(0), number(2), number(4)};
  return true;
}

// A count of pieces in a step. A later one is larger, in 2^47 steps.
inline constexpr int64_t kMostPieces = 1 << 16;
COLLOPS_DEVICE inline uint64_t StagedCount(uint64_t step, int64_t pieces) {
  return step << 16 | static_cast<uint64_t>(pieces);
}
COLLOPS_DEVICE inline bool WaitForCount(const Group& group, const uint64_t* count,
                                        uint64_t wanted) {
  return WaitUntil(group, [&] { return static_cast<int64_t>(LoadSignal(count) - wanted) >= 0; });
}

}  // namespace collops::cuda
