#pragma once

#include <cstdint>

#include "collops/core/dtype.h"
#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/reduction.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/step.h"

namespace collops::cuda {

// output = the reduction, in rank order, of the slices that the ranks have for this one; each is
// read once. Where every rank gets all of x, this is AllReduce, which must go through cells. The
// output may be this rank's own slice.
struct ReduceScatterArgs {
  static constexpr const char* kName = "collops_reduce_scatter";
  static constexpr const char* kGatedName = "collops_gated_reduce_scatter";
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

// Slices that came into cells: each worker reduces its ranges.
template <class Block>
COLLOPS_DEVICE bool ReduceInline(const ReduceScatterArgs& args, const Entered& entered,
                                 Block& block) {
  const Group& group = args.call.group;
  const int64_t bytes = args.call.parts[group.rank].recv_bytes;
  const bool came = TakeMessages(
      group, args.call.receives, entered.step, entered.worker, block,
      [&](int32_t) { return bytes; }, [&](int32_t peer) { return group.Row(peer); });
  if (!came) return false;
  Worker<Block> alone(block, 0, 1);
  COLLOPS_ROLLED
  for (int64_t at = entered.worker * kMessageRange; at < bytes;
       at += group.num_workers * kMessageRange) {
    const int64_t left = bytes - at < kMessageRange ? bytes - at : kMessageRange;
    ReduceAt(args, at, left, alone, [&](int32_t rank) { return group.Row(rank) + at; });
  }
  return true;
}

template <class Block>
COLLOPS_DEVICE bool ReduceInPlace(const ReduceScatterArgs& args, const Entered& entered,
                                  Block& block) {
  const PeerCall& call = args.call;
  const int64_t bytes = call.parts[call.group.rank].recv_bytes;
  Worker<Block> worker(block, entered.worker, block.count());
  if (IsInline(bytes)) {
    if (!ReduceInline(args, entered, block)) return false;
  } else if (call.group.is_direct != 0) {
    ReduceAt(args, 0, bytes, worker, [&](int32_t rank) {
      return reinterpret_cast<const char*>(HeardAddresses(block)[rank]);
    });
  }
  ZeroGaps(call, worker);
  return true;
}

template <class Block>
COLLOPS_DEVICE void ReduceScatter(const ReduceScatterArgs& args, Block& block) {
  const PeerCall& call = args.call;
  InStep(call, block, [&](const Entered& entered) {
    if (!ReduceInPlace(args, entered, block)) return false;
    if (call.group.is_direct != 0) return true;
    const Pieces pieces = PiecesOf(call, call.parts[call.group.rank].recv_bytes, entered.worker);
    return MoveStaged(call, entered, block, [&](int64_t piece, auto& alone) {
      if (pieces.count() <= piece) return;
      ReduceAt(args, pieces.Offset(piece), pieces.Bytes(piece), alone, [&](int32_t rank) {
        return PlaceOf(call, rank, call.group.rank, entered.worker, piece);
      });
    });
  });
}

template <class Block>
COLLOPS_DEVICE void GatedReduceScatter(const Gated<ReduceScatterArgs>& gated, Block& block) {
  InGatedStep(gated.args.call, block,
              [&](const Entered& entered) { return ReduceInPlace(gated.args, entered, block); });
}

}  // namespace collops::cuda
