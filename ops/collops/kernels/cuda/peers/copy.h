#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/signals.h"
#include "collops/kernels/cuda/peers/step.h"

// Copies by the threads of a grid, or of one block that stands for one, from where the data lies or
// through the regions.
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

// Data that goes through the regions, because a rank cannot address what another one passes: worker
// w of the sender copies piece after piece of its share into its slots, and worker w of each
// receiver takes them from there. A sender is two pieces ahead at most.
//
// The share of a worker in a message, and how it is cut into pieces.
struct Pieces {
  int64_t begin = 0;
  int64_t bytes = 0;
  int64_t piece_bytes = 16;

  COLLOPS_DEVICE int64_t count() const { return (bytes + piece_bytes - 1) / piece_bytes; }
  COLLOPS_DEVICE int64_t Offset(int64_t piece) const { return begin + piece * piece_bytes; }
  COLLOPS_DEVICE int64_t Bytes(int64_t piece) const {
    const int64_t rest = bytes - piece * piece_bytes;
    return rest < piece_bytes ? rest : piece_bytes;
  }
};

// Bytes of a piece. Where every rank gets a part of its own, a slot has a place for each of them.
COLLOPS_DEVICE inline int64_t PieceBytes(const PeerCall& call) {
  const int64_t bytes = call.group.slot_bytes;
  return call.same_parts != 0 ? bytes : bytes / call.group.size / 16 * 16;
}

COLLOPS_DEVICE inline Pieces PiecesOf(const PeerCall& call, int64_t bytes, uint32_t worker) {
  if (IsInline(bytes)) return {};
  const int64_t units = (bytes + 15) / 16;
  const int64_t workers = call.group.num_workers;
  const int64_t begin = units * worker / workers * 16;
  const int64_t end = units * (worker + 1) / workers * 16;
  return {begin, (end < bytes ? end : bytes) - begin, PieceBytes(call)};
}

// Where the piece for `reader` lies in the slot of `writer`.
COLLOPS_DEVICE inline char* PlaceOf(const PeerCall& call, int64_t writer, int64_t reader,
                                    uint32_t worker, int64_t piece) {
  char* const slot = call.group.Slot(writer, worker, piece);
  return call.same_parts != 0 ? slot : slot + reader * PieceBytes(call);
}

// Copies piece number `piece` of every message into this rank's slot.
template <class Block>
COLLOPS_DEVICE void Stage(const PeerCall& call, uint32_t worker, int64_t piece, Block& block) {
  const Group& group = call.group;
  // Where every rank gets the same part, one copy is for all of them.
  const int32_t alike = group.rank == 0 ? group.size - 1 : 0;
  CopyParts(call.same_parts != 0 ? 1 : group.size, false, block, [&](int32_t i) -> ByteCopy {
    const int32_t peer = call.same_parts != 0 ? alike : i;
    const Part& part = call.parts[peer];
    const Pieces pieces = PiecesOf(call, part.send_bytes, worker);
    char* const to = PlaceOf(call, group.rank, peer, worker, piece);
    if (peer == group.rank || pieces.count() <= piece) return {to, to, 0};
    return {to, call.x + part.send_offset + pieces.Offset(piece), pieces.Bytes(piece)};
  });
}

// Moves what is not written into cells. take(piece, block) takes piece number `piece` of every
// message to this rank. False if a wait was ended.
template <class Block, class Take>
COLLOPS_DEVICE bool MoveStaged(const PeerCall& call, const Entered& entered, Block& block,
                               Take take) {
  const Group& group = call.group;
  const uint32_t worker = entered.worker;
  const auto sends = [&](int32_t peer) {
    return PiecesOf(call, call.parts[peer].send_bytes, worker).count();
  };
  const auto receives = [&](int32_t peer) {
    return PiecesOf(call, call.parts[peer].recv_bytes, worker).count();
  };
  int64_t rounds = 0;
  for (int32_t peer = 0; peer < group.size; ++peer) {
    if (peer == group.rank) continue;
    rounds = sends(peer) > rounds ? sends(peer) : rounds;
    rounds = receives(peer) > rounds ? receives(peer) : rounds;
  }
  RegionHead* const mine = group.Head(group.rank);
  Worker<Block> alone(block, 0, 1);
  COLLOPS_ROLLED
  for (int64_t piece = 0; piece < rounds; ++piece) {
    const uint64_t count = StagedCount(entered.step, piece + 1);
    const bool slot_is_free = ForPeers(group, block, [&](int32_t peer) {
      return piece < 2 || sends(peer) <= piece ||
             WaitForCount(group, &mine->taken[peer][worker], StagedCount(entered.step, piece - 1));
    });
    if (!slot_is_free) return false;
    Stage(call, worker, piece, alone);
    block.Sync();
    const bool is_there = ForPeers(group, block, [&](int32_t peer) {
      if (sends(peer) > piece) {
        Fence(false);
        StoreSignal(&group.Head(peer)->staged[group.rank][worker], count);
      }
      if (receives(peer) <= piece) return true;
      if (!WaitForCount(group, &mine->staged[peer][worker], count)) return false;
      Fence(false);
      return true;
    });
    if (!is_there) return false;
    take(piece, alone);
    block.Sync();
    block.Each([&](uint32_t thread) {
      const auto peer = static_cast<int32_t>(thread);
      if (peer >= group.size || peer == group.rank || receives(peer) <= piece) return;
      Fence(false);
      StoreSignal(&group.Head(peer)->taken[group.rank][worker], count);
    });
  }
  return true;
}

}  // namespace collops::cuda
