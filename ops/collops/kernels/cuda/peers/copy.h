#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"

// Copies by the threads of a grid, or of one block that stands for one.
namespace collops::cuda {

// Bytes from and to any address, which do not overlap.
struct ByteCopy {
  char* to;
  const char* from;
  int64_t bytes;
};

// A copy is cut in units as large as the distance of both addresses allows, with single bytes
// before and behind them, and the units in tiles. A warp loads a whole tile before it stores any of
// it.
inline constexpr int64_t kAheadUnits = 8;  // of a thread
inline constexpr int64_t kTileUnits = kAheadUnits * kWarpThreads;

template <class T>
COLLOPS_DEVICE void StoreUnit(char* to, const T& unit, bool is_streamed) {
  if constexpr (sizeof(T) == 16) {
    if (is_streamed) return StoreStreaming(to, unit);
  }
  Store<T>(to, unit);
}

// What one warp, or one thread of it, copies: its first tile, and how far its next one is.
struct Turn {
  int64_t tile;
  int64_t step;
  uint32_t lane;
};

// The thread's part of its warp's tiles. Returns by how many tiles the next one is behind the end.
template <class T>
COLLOPS_DEVICE int64_t CopyUnits(const ByteCopy& copy, Turn turn, bool is_streamed) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  const auto apart = static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(copy.to)) % sizeof(T));
  const int64_t before = apart < copy.bytes ? apart : copy.bytes;
  const int64_t units = (copy.bytes - before) / kBytes;
  const int64_t tiles = (units + kTileUnits - 1) / kTileUnits;
  COLLOPS_ROLLED
  for (; turn.tile < tiles; turn.tile += turn.step) {
    const int64_t first = turn.tile * kTileUnits + turn.lane;
    const char* const from = copy.from + before + first * kBytes;
    char* const to = copy.to + before + first * kBytes;
    T loaded[kAheadUnits] = {};
    for (int64_t k = 0; k < kAheadUnits; ++k) {
      if (first + k * kWarpThreads < units) loaded[k] = Load<T>(from + k * kWarpThreads * kBytes);
    }
    for (int64_t k = 0; k < kAheadUnits; ++k) {
      if (first + k * kWarpThreads < units) {
        StoreUnit<T>(to + k * kWarpThreads * kBytes, loaded[k], is_streamed);
      }
    }
  }
  if constexpr (kBytes == 1) return turn.tile - tiles;
  // The single bytes are a tile more: fewer than 16 before, and behind.
  if (turn.tile == tiles) {
    const int64_t behind = before + units * kBytes + turn.lane;
    if (turn.lane < before) Store(copy.to + turn.lane, Load<uint8_t>(copy.from + turn.lane));
    if (behind < copy.bytes) Store(copy.to + behind, Load<uint8_t>(copy.from + behind));
    turn.tile += turn.step;
  }
  return turn.tile - tiles - 1;
}

// Called, because it is long, and needs most registers.
COLLOPS_DEVICE inline int64_t CopyPart(const ByteCopy& copy, Turn turn, bool is_streamed) {
  const auto apart = reinterpret_cast<uintptr_t>(copy.to) - reinterpret_cast<uintptr_t>(copy.from);
  if (apart % 16 == 0) return CopyUnits<Wide>(copy, turn, is_streamed);
  if (apart % 8 == 0) return CopyUnits<uint64_t>(copy, turn, is_streamed);
  if (apart % 4 == 0) return CopyUnits<uint32_t>(copy, turn, is_streamed);
  if (apart % 2 == 0) return CopyUnits<uint16_t>(copy, turn, is_streamed);
  return CopyUnits<uint8_t>(copy, turn, is_streamed);
}

// Copies part(0) to part(count - 1), one behind the other: the warps take their tiles in turn, so
// that it does not matter how long each part is. `is_streamed`: the outputs are too long to be in
// the L2 for the next kernel.
template <class Block, class PartOf>
COLLOPS_DEVICE void CopyParts(int32_t count, bool is_streamed, Block& block, PartOf part) {
  block.Each([&](uint32_t thread) {
    const int64_t warps = block.threads() / kWarpThreads;
    Turn turn = {block.index() * warps + thread / kWarpThreads, block.count() * warps,
                 thread % kWarpThreads};
    COLLOPS_ROLLED
    for (int32_t i = 0; i < count; ++i) {
      const ByteCopy copy = part(i);
      if (copy.to != copy.from && copy.bytes > 0) turn.tile = CopyPart(copy, turn, is_streamed);
    }
  });
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

}  // namespace collops::cuda
