#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/signals.h"
#include "collops/kernels/cuda/peers/step.h"

// Data that goes through the regions, because a rank cannot address what another one passes: worker
// w of the sender copies piece after piece of its share into its slots, and worker w of each
// receiver takes them from there. A sender is two pieces ahead at most.
namespace collops::cuda {

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
