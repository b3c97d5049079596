#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/staging.h"
#include "collops/kernels/cuda/peers/step.h"

namespace collops::cuda {

// output[recv_offset of q] = the part for this rank of rank q's x, for every rank q: AllGatherV,
// where every part is the whole x, ExchangeV, Broadcast; and without data a barrier. The threads
// share the bytes of every part, so it does not matter which ranks have more of them. Output and x
// do not overlap, but this rank's own part may lie where it goes to.
struct MoveArgs {
  static constexpr const char* kName = "collops_move";
  PeerCall call;
};

// Messages of this rank into the cells of their receivers.
template <class Block>
COLLOPS_DEVICE void StoreMessages(const PeerCall& call, uint64_t step, Block& block) {
  const Group& group = call.group;
  for (int32_t i = 1; i < group.size; ++i) {
    const int32_t peer = (group.rank + i) % group.size;
    const Part& part = call.parts[peer];
    if (!IsInline(part.send_bytes)) continue;
    StoreMessage(group.Cell(step, peer, group.rank), step, call.x + part.send_offset,
                 part.send_bytes, block);
  }
}

template <class Block>
COLLOPS_DEVICE void ZeroGaps(const PeerCall& call, Block& block) {
  for (int32_t i = 0; i < call.num_gaps; ++i) {
    ZeroBytes(call.output + call.gaps[i].offset, call.gaps[i].bytes, block);
  }
}

// Takes this rank's own part, and what the peers have in cells, or in memory that is read in place.
template <class Block>
COLLOPS_DEVICE bool TakeParts(const PeerCall& call, const Entered& entered, Block& block) {
  const Group& group = call.group;
  Worker<Block> worker(block, entered.worker, block.count());
  for (int32_t i = 0; i < group.size; ++i) {
    // Every rank begins with another one, so that they do not all read the same memory.
    const int32_t peer = (group.rank + i) % group.size;
    const Part& part = call.parts[peer];
    char* const to = call.output + part.recv_offset;
    const uint64_t* const cell = group.Cell(entered.step, group.rank, peer);
    if (peer == group.rank) {
      CopyBytes(to, call.x + part.send_offset, part.recv_bytes, worker);
    } else if (IsInline(part.recv_bytes)) {
      if (static_cast<uint32_t>(peer) % block.count() != entered.worker) continue;
      if (!TakeMessage(group, cell, entered.step, to, part.recv_bytes, block)) return false;
    } else if (group.is_direct != 0) {
      const auto* const from = reinterpret_cast<const char*>(HeadNumber(cell, 2));
      CopyBytes(to, from, part.recv_bytes, worker);
    }
  }
  return true;
}

template <class Block>
COLLOPS_DEVICE bool MoveParts(const PeerCall& call, const Entered& entered, Block& block) {
  if (entered.worker == 0) StoreMessages(call, entered.step, block);
  if (!TakeParts(call, entered, block)) return false;
  Worker<Block> worker(block, entered.worker, block.count());
  ZeroGaps(call, worker);
  if (call.group.is_direct != 0) return true;
  return MoveStaged(call, entered, block, [&](int64_t piece, auto& alone) {
    for (int32_t i = 1; i < call.group.size; ++i) {
      const int32_t peer = (call.group.rank + i) % call.group.size;
      const Part& part = call.parts[peer];
      const Pieces pieces = PiecesOf(call, part.recv_bytes, entered.worker);
      if (pieces.count() <= piece) continue;
      CopyBytes(call.output + part.recv_offset + pieces.Offset(piece),
                PlaceOf(call, peer, call.group.rank, entered.worker, piece), pieces.Bytes(piece),
                alone);
    }
  });
}

template <class Block>
COLLOPS_DEVICE void Move(const MoveArgs& args, Block& block) {
  const Entered entered = Enter(args.call, block);
  if (entered.failed) return;
  const bool moved = entered.may_move && MoveParts(args.call, entered, block);
  Leave(args.call, entered, moved, block);
}

}  // namespace collops::cuda
