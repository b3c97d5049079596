#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/step.h"

namespace collops::cuda {

// output[recv_offset of q] = the part for this rank of rank q's x, for every rank q: AllGatherV,
// where every part is the whole x, ExchangeV, Broadcast; and without data a barrier. The threads
// share the bytes of every part, so it does not matter which ranks have more of them. Output and x
// do not overlap, but this rank's own part may lie where it goes to.
struct MoveArgs {
  static constexpr const char* kName = "collops_move";
  static constexpr const char* kGatedName = "collops_gated_move";
  PeerCall call;
};

template <class Block>
COLLOPS_DEVICE void ZeroGaps(const PeerCall& call, Block& block) {
  for (int32_t i = 0; i < call.num_gaps; ++i) {
    ZeroBytes(call.output + call.gaps[i].offset, call.gaps[i].bytes, block);
  }
}

// Takes this rank's own part, and what the peers have in memory that is read in place: where one
// GPU runs all ranks, they take the same bytes at about the same time, which the L2 then has.
template <class Block>
COLLOPS_DEVICE void TakeParts(const PeerCall& call, Block& block) {
  const Group& group = call.group;
  CopyParts(group.size, call.is_streamed != 0, block, [&](int32_t peer) -> ByteCopy {
    const Part& part = call.parts[peer];
    char* const to = call.output + part.recv_offset;
    if (peer == group.rank) return {to, call.x + part.send_offset, part.recv_bytes};
    if (!IsReadInPlace(group, part.recv_bytes)) return {to, to, 0};
    return {to, reinterpret_cast<const char*>(HeardAddresses(block)[peer]), part.recv_bytes};
  });
}

// Piece number `piece` of what comes through the regions.
template <class Block>
COLLOPS_DEVICE void TakePieces(const PeerCall& call, uint32_t worker, int64_t piece, Block& block) {
  const Group& group = call.group;
  // Every rank begins with another one, so that they do not all read the same GPU's memory.
  CopyParts(group.size - 1, false, block, [&](int32_t i) -> ByteCopy {
    const int32_t peer = (group.rank + 1 + i) % group.size;
    const Part& part = call.parts[peer];
    const Pieces pieces = PiecesOf(call, part.recv_bytes, worker);
    char* const to = call.output + part.recv_offset + pieces.Offset(piece);
    if (pieces.count() <= piece) return {to, to, 0};
    return {to, PlaceOf(call, peer, group.rank, worker, piece), pieces.Bytes(piece)};
  });
}

// What is waited for comes last.
template <class Block>
COLLOPS_DEVICE bool MoveInPlace(const PeerCall& call, const Entered& entered, Block& block) {
  Worker<Block> worker(block, entered.worker, block.count());
  TakeParts(call, worker);
  ZeroGaps(call, worker);
  return TakeMessages(
      call.group, call.receives, entered.step, entered.worker, block,
      [&](int32_t peer) { return call.parts[peer].recv_bytes; },
      [&](int32_t peer) { return call.output + call.parts[peer].recv_offset; });
}

template <class Block>
COLLOPS_DEVICE void Move(const MoveArgs& args, Block& block) {
  const PeerCall& call = args.call;
  InStep(call, block, [&](const Entered& entered) {
    if (!MoveInPlace(call, entered, block)) return false;
    if (call.group.is_direct != 0) return true;
    return MoveStaged(call, entered, block, [&](int64_t piece, auto& alone) {
      TakePieces(call, entered.worker, piece, alone);
    });
  });
}

template <class Block>
COLLOPS_DEVICE void GatedMove(const Gated<MoveArgs>& gated, Block& block) {
  const PeerCall& call = gated.args.call;
  InGatedStep(call, block,
              [&](const Entered& entered) { return MoveInPlace(call, entered, block); });
}

}  // namespace collops::cuda
