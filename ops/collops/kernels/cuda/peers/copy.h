#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/signals.h"

// Copies by the threads of a grid, or of one block that stands for one.
namespace collops::cuda {

// `count` units of T, kAhead loads of a thread at a time.
template <class T, class Block>
COLLOPS_DEVICE void CopyUnits(char* to, const char* from, int64_t count, Block& block) {
  constexpr int64_t kAhead = 4;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  block.Each([&](uint32_t thread) {
    const int64_t step = StepOf(block);
    int64_t i = FirstOf(block, thread);
    COLLOPS_ROLLED
    for (; i + (kAhead - 1) * step < count; i += kAhead * step) {
      T units[kAhead];
      for (int64_t k = 0; k < kAhead; ++k) units[k] = Load<T>(from + (i + k * step) * kBytes);
      for (int64_t k = 0; k < kAhead; ++k) Store<T>(to + (i + k * step) * kBytes, units[k]);
    }
    COLLOPS_ROLLED
    for (; i < count; i += step) Store<T>(to + i * kBytes, Load<T>(from + i * kBytes));
  });
}

// `bytes` bytes from and to any address, which do not overlap: in units as large as the distance of
// both allows, and single bytes before and behind.
template <class T, class Block>
COLLOPS_DEVICE void CopyInUnits(char* to, const char* from, int64_t bytes, Block& block) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const auto before = static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(to)) % sizeof(T));
  const int64_t head = before < bytes ? before : bytes;
  const int64_t units = (bytes - head) / kBytes;
  const int64_t behind = head + units * kBytes;
  CopyUnits<T>(to + head, from + head, units, block);
  CopyUnits<uint8_t>(to, from, head, block);
  CopyUnits<uint8_t>(to + behind, from + behind, bytes - behind, block);
}

template <class Block>
COLLOPS_DEVICE void CopyBytes(char* to, const char* from, int64_t bytes, Block& block) {
  if (to == from) return;
  const uintptr_t apart = reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
  if (apart % 16 == 0) return CopyInUnits<Wide>(to, from, bytes, block);
  if (apart % 8 == 0) return CopyInUnits<uint64_t>(to, from, bytes, block);
  if (apart % 4 == 0) return CopyInUnits<uint32_t>(to, from, bytes, block);
  if (apart % 2 == 0) return CopyInUnits<uint16_t>(to, from, bytes, block);
  CopyUnits<uint8_t>(to, from, bytes, block);
}

template <class Block>
COLLOPS_DEVICE void ZeroBytes(char* to, int64_t bytes, Block& block) {
  const auto before = static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(to)) % 16);
  const int64_t head = before < bytes ? before : bytes;
  const int64_t wides = (bytes - head) / 16;
  const int64_t singles = bytes - wides * 16;
  block.Each([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t i = FirstOf(block, thread); i < wides; i += StepOf(block)) {
      Store(to + head + i * 16, Wide{});
    }
    COLLOPS_ROLLED
    for (int64_t i = FirstOf(block, thread); i < singles; i += StepOf(block)) {
      Store(to + (i < head ? i : i + wides * 16), uint8_t{0});
    }
  });
}

// The bytes of a word of a message, which may lie at any address; the last word may have fewer than
// 4.
COLLOPS_DEVICE inline uint32_t LoadWord(const char* from, int64_t bytes) {
  if (bytes >= 4 && reinterpret_cast<uintptr_t>(from) % 4 == 0) return Load<uint32_t>(from);
  uint32_t word = 0;
  for (int64_t i = 0; i < 4 && i < bytes; ++i) {
    word |= static_cast<uint32_t>(Load<uint8_t>(from + i)) << 8 * i;
  }
  return word;
}
COLLOPS_DEVICE inline void StoreWord(char* to, int64_t bytes, uint32_t word) {
  if (bytes >= 4 && reinterpret_cast<uintptr_t>(to) % 4 == 0) return Store(to, word);
  for (int64_t i = 0; i < 4 && i < bytes; ++i) {
    Store(to + i, static_cast<uint8_t>(word >> 8 * i));
  }
}

// A message into the cell of its receiver, by one block.
template <class Block>
COLLOPS_DEVICE void StoreMessage(uint64_t* cell, uint64_t step, const char* from, int64_t bytes,
                                 Block& block) {
  block.Each([&](uint32_t thread) {
    for (int64_t at = thread * int64_t{4}; at < bytes; at += block.threads() * int64_t{4}) {
      StoreRelaxed(cell + kHeadWords + at / 4, CellWord(step, LoadWord(from + at, bytes - at)));
    }
  });
}

// Waits for a message in a cell of this rank, and stores it; false if the wait was ended.
template <class Block>
COLLOPS_DEVICE bool TakeMessage(const Group& group, const uint64_t* cell, uint64_t step, char* to,
                                int64_t bytes, Block& block) {
  return block.All([&](uint32_t thread) {
    for (int64_t at = thread * int64_t{4}; at < bytes; at += block.threads() * int64_t{4}) {
      const uint64_t* const place = cell + kHeadWords + at / 4;
      uint64_t word = 0;
      const auto is_here = [&] { return IsOfStep(word = LoadRelaxed(place), step); };
      if (!WaitUntil(group, is_here)) return false;
      StoreWord(to + at, bytes - at, static_cast<uint32_t>(word));
    }
    return true;
  });
}

}  // namespace collops::cuda
