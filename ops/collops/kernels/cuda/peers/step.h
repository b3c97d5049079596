#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/signals.h"

// The way of a call through a group, in one kernel per rank: Enter, move data, Leave. In every step
// each rank tells every other one its terms, and hears theirs before it begins the next step. So a
// cell of step s, which is used again in step s + 2, has been read by then.
//
// A block never waits for a block of its own grid, and of the peers' grids for what their first
// block does, or the block with its own number: blocks are numbered in the order in which they
// begin. So every call ends however few of the blocks run at once.
namespace collops::cuda {

// What one rank gets from this one, and this one from it, in bytes.
struct Part {
  int64_t send_offset;  // in x
  int64_t send_bytes;
  int64_t recv_offset;  // in the output
  int64_t recv_bytes;
};

struct ByteRange {
  int64_t offset;
  int64_t bytes;
};

// One rank's part of a call.
struct PeerCall {
  Group group;
  uint64_t digest;   // equal on ranks that agree
  uint64_t balance;  // adds up to 0 over ranks that agree
  const char* x;
  char* output;
  int32_t same_parts;  // 1: every rank gets the same part of x
  int32_t num_gaps;
  Part parts[kMostRanks];
  ByteRange gaps[kMostRanks + 1];  // of the output: set to zero
};

inline COLLOPS_DEVICE bool IsInline(int64_t bytes) {
  return bytes <= kInlineBytes;
}

// A block's place in a step.
struct Entered {
  uint64_t step;
  uint32_t worker;  // number of this block in the order of their beginning
  bool may_move;    // all ranks have come, and agree
  bool failed;      // the group has ended: nothing is to be told to anybody
};

// Ends the group on this rank: later calls move nothing.
COLLOPS_DEVICE inline void SetFailed(const Group& group) {
  StoreRelease(&group.Own()->failed, uint32_t{1});
}

// The first block tells the other ranks this rank's terms.
template <class Block>
COLLOPS_DEVICE void TellHeads(const PeerCall& call, uint64_t step, Block& block) {
  const Group& group = call.group;
  block.Each([&](uint32_t thread) {
    const auto peer = static_cast<int32_t>(thread);
    if (peer >= group.size || peer == group.rank) return;
    const Part& part = call.parts[peer];
    const bool is_read = group.is_direct != 0 && !IsInline(part.send_bytes);
    const Head head{call.digest, call.balance,
                    reinterpret_cast<uint64_t>(call.x + part.send_offset)};
    StoreHead(group.Cell(step, peer, group.rank), step, head, is_read);
  });
}

// Whether all ranks have the same digest, and their balances add up to 0.
template <class Block>
COLLOPS_DEVICE bool Agree(const PeerCall& call, uint64_t step, Block& block) {
  const Group& group = call.group;
  const bool equal = block.All([&](uint32_t thread) {
    const auto peer = static_cast<int32_t>(thread);
    if (peer >= group.size || peer == group.rank) return true;
    return HeadNumber(group.Cell(step, group.rank, peer), 0) == call.digest;
  });
  const uint64_t sum = block.FromOne([&] {
    uint64_t balance = call.balance;
    for (int32_t peer = 0; peer < group.size; ++peer) {
      if (peer != group.rank) balance += HeadNumber(group.Cell(step, group.rank, peer), 1);
    }
    return balance;
  });
  return equal && sum == 0;
}

// Tells the host what the ranks' terms are.
template <class Block>
COLLOPS_DEVICE void Report(const PeerCall& call, uint64_t step, Block& block) {
  const Group& group = call.group;
  Verdict* const verdict = group.verdict;
  block.Each([&](uint32_t thread) {
    const auto rank = static_cast<int32_t>(thread);
    if (rank >= group.size) return;
    const uint64_t* const cell = group.Cell(step, group.rank, rank);
    const bool own = rank == group.rank;
    StoreRelaxed(&verdict->digests[rank], own ? call.digest : HeadNumber(cell, 0));
    StoreRelaxed(&verdict->balances[rank], own ? call.balance : HeadNumber(cell, 1));
  });
  block.Sync();
  block.Each([&](uint32_t thread) {
    if (thread == 0) StoreRelease(&verdict->step, step);
  });
}

template <class Block>
COLLOPS_DEVICE Entered Enter(const PeerCall& call, Block& block) {
  const Group& group = call.group;
  OwnCounts* const own = group.Own();
  Entered entered = {0, 0, false, true};
  if (block.FromOne([&] { return uint64_t{LoadAcquire(&own->failed)}; }) != 0) return entered;
  entered.worker =
      static_cast<uint32_t>(block.FromOne([&] { return uint64_t{CountUp(&own->arrived)}; }));
  entered.step = block.FromOne([&] { return LoadAcquire(&own->step) + 1; });
  if (entered.worker == 0) TellHeads(call, entered.step, block);
  const bool all_came = block.All([&](uint32_t thread) {
    const auto peer = static_cast<int32_t>(thread);
    if (peer >= group.size || peer == group.rank) return true;
    return WaitForHead(group, group.Cell(entered.step, group.rank, peer), entered.step);
  });
  if (!all_came) {
    block.Each([&](uint32_t thread) {
      if (thread == 0) SetFailed(group);
    });
    return entered;
  }
  entered.failed = false;
  entered.may_move = Agree(call, entered.step, block);
  if (!entered.may_move && entered.worker == 0) Report(call, entered.step, block);
  return entered;
}

// The last block to end tells the ranks whose data this one has read in place, waits for those that
// read here, and ends the step. `moved`: nothing has stopped this block.
template <class Block>
COLLOPS_DEVICE void Leave(const PeerCall& call, const Entered& entered, bool moved, Block& block) {
  const Group& group = call.group;
  OwnCounts* const own = group.Own();
  block.Sync();
  const uint64_t ended = block.FromOne([&] {
    if (!moved) SetFailed(group);
    return uint64_t{CountUp(&own->ended)};
  });
  if (ended + 1 != block.count()) return;
  if (block.FromOne([&] { return uint64_t{LoadAcquire(&own->failed)}; }) != 0) return;
  const bool all_read = block.All([&](uint32_t thread) {
    const auto peer = static_cast<int32_t>(thread);
    if (peer >= group.size || peer == group.rank) return true;
    const Part& part = call.parts[peer];
    if (!IsInline(part.recv_bytes)) {
      StoreRelease(&group.Head(peer)->read[group.rank], entered.step);
    }
    return IsInline(part.send_bytes) ||
           WaitForCount(group, &group.Head(group.rank)->read[peer], entered.step);
  });
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    if (!all_read) return SetFailed(group);
    StoreRelease(&own->arrived, uint32_t{0});
    StoreRelease(&own->ended, uint32_t{0});
    StoreRelease(&own->step, entered.step);
  });
}

}  // namespace collops::cuda
