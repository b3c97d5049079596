#pragma once

#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/rank_order.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/staging.h"
#include "collops/kernels/cuda/peers/step.h"

namespace collops::cuda {

// output = the reduction, in rank order, of the slices that the ranks have for this one; each is
// read once. Where every rank gets all of x, this is AllReduce, which must go through cells. The
// output may be this rank's own slice.
struct ReduceScatterArgs {
  static constexpr const char* kName = "collops_reduce_scatter";
  PeerCall call;
  DType dtype;
  ReduceOp op;
};

// Slices whose addresses are in a table.
struct TableSlices {
  const uint64_t* table;
  uint32_t num_slices;

  COLLOPS_DEVICE uint32_t size() const { return num_slices; }
  COLLOPS_DEVICE const char* At(uint32_t rank) const {
    return reinterpret_cast<const char*>(table[rank]);
  }
};

// Called, because its code is long: all types and operations.
template <class Block>
COLLOPS_DEVICE COLLOPS_CALLED void ReduceTable(const ReduceScatterArgs& args, char* output,
                                               int64_t bytes, Block& block) {
  const TableSlices slices{block.Table(), static_cast<uint32_t>(args.call.group.size)};
  ReduceInRankOrder(slices, output, bytes / ElementBytes(args.dtype), args.dtype, args.op, block);
}

// Reduces `bytes` bytes behind `offset` of this rank's slices. address_of(peer) is where those
// bytes of a peer's slice lie.
template <class Block, class AddressOf>
COLLOPS_DEVICE void ReduceAt(const ReduceScatterArgs& args, int64_t offset, int64_t bytes,
                             Block& block, AddressOf address_of) {
  const PeerCall& call = args.call;
  const Group& group = call.group;
  const char* const own = call.x + call.parts[group.rank].send_offset + offset;
  block.Each([&](uint32_t thread) {
    const auto rank = static_cast<int32_t>(thread);
    if (rank >= group.size) return;
    const char* const from = rank == group.rank ? own : address_of(rank);
    block.Table()[rank] = reinterpret_cast<uint64_t>(from);
  });
  block.Sync();
  char* const output = call.output + call.parts[group.rank].recv_offset + offset;
  ReduceTable(args, output, bytes, block);
  block.Sync();  // the table may be written again
}

// Slices that came into cells, by one block.
template <class Block>
COLLOPS_DEVICE bool ReduceInline(const ReduceScatterArgs& args, const Entered& entered,
                                 Block& block) {
  const Group& group = args.call.group;
  const int64_t bytes = args.call.parts[group.rank].recv_bytes;
  for (int32_t i = 1; i < group.size; ++i) {
    const int32_t peer = (group.rank + i) % group.size;
    const uint64_t* const cell = group.Cell(entered.step, group.rank, peer);
    if (!TakeMessage(group, cell, entered.step, group.Row(peer), bytes, block)) return false;
  }
  Worker<Block> alone(block, 0, 1);
  ReduceAt(args, 0, bytes, alone, [&](int32_t rank) { return group.Row(rank); });
  return true;
}

template <class Block>
COLLOPS_DEVICE bool ReduceParts(const ReduceScatterArgs& args, const Entered& entered,
                                Block& block) {
  const PeerCall& call = args.call;
  const Group& group = call.group;
  const int64_t bytes = call.parts[group.rank].recv_bytes;
  Worker<Block> worker(block, entered.worker, block.count());
  if (entered.worker == 0) StoreMessages(call, entered.step, block);
  if (IsInline(bytes)) {
    if (entered.worker == 0 && !ReduceInline(args, entered, block)) return false;
  } else if (group.is_direct != 0) {
    ReduceAt(args, 0, bytes, worker, [&](int32_t rank) {
      const uint64_t* const cell = group.Cell(entered.step, group.rank, rank);
      return reinterpret_cast<const char*>(HeadNumber(cell, 2));
    });
  }
  ZeroGaps(call, worker);
  if (group.is_direct != 0) return true;
  const Pieces pieces = PiecesOf(call, bytes, entered.worker);
  return MoveStaged(call, entered, block, [&](int64_t piece, auto& alone) {
    if (pieces.count() <= piece) return;
    ReduceAt(args, pieces.Offset(piece), pieces.Bytes(piece), alone,
             [&](int32_t rank) { return PlaceOf(call, rank, group.rank, entered.worker, piece); });
  });
}

template <class Block>
COLLOPS_DEVICE void ReduceScatter(const ReduceScatterArgs& args, Block& block) {
  const Entered entered = Enter(args.call, block);
  if (entered.failed) return;
  const bool moved = entered.may_move && ReduceParts(args, entered, block);
  Leave(args.call, entered, moved, block);
}

}  // namespace collops::cuda
