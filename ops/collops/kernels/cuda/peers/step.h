#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/signals.h"

// The way of a call through a group: Enter, move data, Leave. In every step each rank tells every
// other one its terms, and hears theirs before it begins the next step. So a cell of step s, which
// is used again in step s + 2, has been read by then, and may be written before anything is heard.
//
// Most calls are one kernel. A block of it never waits for a block of its own grid, and of the
// peers' grids for what their first block does, or the block with its own number: blocks are
// numbered in the order in which they begin. So every call ends however few of the blocks run at
// once. A long call whose data is read in place is two kernels: a gate, which is Enter in one
// block, then the data, in as many blocks as the GPU has places for, as none of them waits for a
// rank that is late; the last of them to end does Leave.
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
  int32_t same_parts;   // 1: every rank gets the same part of x
  int32_t is_streamed;  // 1: see CopyParts()
  int32_t has_long;     // 1: some part does not fit into a cell
  Messages sends;
  Messages receives;
  int32_t num_gaps;
  Part parts[kMostRanks];
  ByteRange gaps[kMostRanks + 1];  // of the output: set to zero
};

// What the host finds out for the kernels, which would look at every part.
inline void Describe(PeerCall* call) {
  const Group& group = call->group;
  const Part* const parts = call->parts;
  call->sends =
      FindMessages(group.rank, group.size, [&](int32_t r) { return parts[r].send_bytes; });
  call->receives =
      FindMessages(group.rank, group.size, [&](int32_t r) { return parts[r].recv_bytes; });
  call->has_long = 0;
  for (int32_t r = 0; r < group.size; ++r) {
    const bool is_long = !IsInline(parts[r].send_bytes) || !IsInline(parts[r].recv_bytes);
    if (r != group.rank && is_long) call->has_long = 1;
  }
}

// A block's place in a step.
struct Entered {
  uint64_t step;
  uint32_t worker;  // number of this block in the order of their beginning
  bool may_move;    // all ranks have come, and agree
  bool failed;      // the group has ended: nothing is to be told to anybody
};

// What a block has heard from the ranks, in its table.
template <class Block>
COLLOPS_DEVICE uint64_t* HeardAddresses(Block& block) {
  return block.Table();
}
template <class Block>
COLLOPS_DEVICE uint64_t* HeardDigests(Block& block) {
  return block.Table() + kMostRanks;
}
template <class Block>
COLLOPS_DEVICE uint64_t* HeardBalances(Block& block) {
  return block.Table() + 2 * kMostRanks;
}
static_assert(3 * kMostRanks <= kTableWords);

// Ends the group on this rank: later calls move nothing.
COLLOPS_DEVICE inline void SetFailed(const Group& group) {
  StoreSignal(&group.Own()->failed, uint32_t{1});
}

// Runs f(peer) for every peer, each in a thread; whether all of them are true.
template <class Block, class F>
COLLOPS_DEVICE bool ForPeers(const Group& group, Block& block, F f) {
  return block.All([&](uint32_t thread) {
    const auto peer = static_cast<int32_t>(thread);
    return peer >= group.size || peer == group.rank || f(peer);
  });
}

// Whether a peer reads what this rank sends it where it lies.
COLLOPS_DEVICE inline bool IsReadInPlace(const Group& group, int64_t bytes) {
  return group.is_direct != 0 && !IsInline(bytes);
}

COLLOPS_DEVICE inline Head OwnHead(const PeerCall& call, int32_t peer) {
  return {call.digest, call.balance,
          reinterpret_cast<uint64_t>(call.x + call.parts[peer].send_offset)};
}

// Tells the other ranks this rank's terms.
template <class Block>
COLLOPS_DEVICE void TellHeads(const PeerCall& call, uint64_t step, Block& block) {
  const Group& group = call.group;
  block.Each([&](uint32_t thread) {
    const auto peer = static_cast<int32_t>(thread);
    if (peer >= group.size || peer == group.rank) return;
    // What this rank's stream has written before can be read by whoever sees the head.
    if (IsReadInPlace(group, call.parts[peer].send_bytes)) Fence(true);
    StoreHead(group.Cell(step, peer, group.rank), step, OwnHead(call, peer));
  });
}

// Hears the other ranks' terms; false if the wait was ended.
template <class Block>
COLLOPS_DEVICE bool HearHeads(const PeerCall& call, uint64_t step, Block& block) {
  const Group& group = call.group;
  return block.All([&](uint32_t thread) {
    const auto rank = static_cast<int32_t>(thread);
    if (rank >= group.size) return true;
    Head head = OwnHead(call, rank);
    if (rank != group.rank) {
      if (!WaitForHead(group, group.Cell(step, group.rank, rank), step, &head)) return false;
      if (IsReadInPlace(group, call.parts[rank].recv_bytes)) Fence(true);
    }
    HeardAddresses(block)[rank] = head.address;
    HeardDigests(block)[rank] = head.digest;
    HeardBalances(block)[rank] = head.balance;
    return true;
  });
}

// Whether all ranks have the same digest, and their balances add up to 0.
template <class Block>
COLLOPS_DEVICE bool Agree(const PeerCall& call, Block& block) {
  return block.All([&](uint32_t thread) {
    const auto rank = static_cast<int32_t>(thread);
    uint64_t sum = 0;
    for (int32_t r = 0; thread == 0 && r < call.group.size; ++r) sum += HeardBalances(block)[r];
    return sum == 0 && (rank >= call.group.size || HeardDigests(block)[rank] == call.digest);
  });
}

// Tells the host what the ranks' terms are.
template <class Block>
COLLOPS_DEVICE void Report(const PeerCall& call, uint64_t step, Block& block) {
  Verdict* const verdict = call.group.verdict;
  block.Each([&](uint32_t thread) {
    if (static_cast<int32_t>(thread) >= call.group.size) return;
    StoreSignal(&verdict->digests[thread], HeardDigests(block)[thread]);
    StoreSignal(&verdict->balances[thread], HeardBalances(block)[thread]);
  });
  block.Sync();
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    Fence(false);
    StoreSignal(&verdict->step, step);
  });
}

// Short messages leave with the heads.
template <class Block>
COLLOPS_DEVICE Entered Enter(const PeerCall& call, Block& block) {
  struct Looked {
    uint64_t step;
    uint32_t failed;
    uint32_t worker;
  };
  const Group& group = call.group;
  OwnCounts* const own = group.Own();
  const Looked looked = block.FromOne([&] {
    const uint64_t step = LoadSignal(&own->step) + 1;
    const uint32_t failed = LoadSignal(&own->failed);
    return Looked{step, failed, block.count() == 1 ? 0 : CountUp(&own->arrived)};
  });
  Entered entered = {looked.step, looked.worker, false, true};
  if (looked.failed != 0) return entered;
  if (entered.worker == 0) TellHeads(call, entered.step, block);
  StoreMessages(
      group, call.sends, entered.step, entered.worker, block,
      [&](int32_t peer) { return call.parts[peer].send_bytes; },
      [&](int32_t peer) { return call.x + call.parts[peer].send_offset; });
  if (!HearHeads(call, entered.step, block)) {
    block.Each([&](uint32_t thread) {
      if (thread == 0) SetFailed(group);
    });
    return entered;
  }
  entered.failed = false;
  entered.may_move = Agree(call, block);
  if (!entered.may_move && entered.worker == 0) Report(call, entered.step, block);
  return entered;
}

// The last block to end tells the ranks whose data this one has read in place, waits for those that
// read here, and ends the step. `moved`: nothing has stopped this block.
template <class Block>
COLLOPS_DEVICE void Leave(const PeerCall& call, uint64_t step, bool moved, Block& block) {
  const Group& group = call.group;
  OwnCounts* const own = group.Own();
  block.Sync();
  const bool goes_on = block.FromOne([&] {
    if (!moved) {
      SetFailed(group);
      return false;  // not counted, so no block is the last one
    }
    if (block.count() == 1) return true;
    if (call.has_long != 0) Fence(true);
    const bool is_last = CountUp(&own->ended) + 1 == block.count();
    if (is_last && call.has_long != 0) Fence(true);
    return is_last;
  });
  if (!goes_on) return;
  const bool all_read = ForPeers(group, block, [&](int32_t peer) {
    const Part& part = call.parts[peer];
    if (!IsInline(part.recv_bytes)) {
      Fence(group.is_direct != 0);
      StoreSignal(&group.Head(peer)->read[group.rank], step);
    }
    return IsInline(part.send_bytes) ||
           WaitForCount(group, &group.Head(group.rank)->read[peer], step);
  });
  block.Each([&](uint32_t thread) {
    if (thread != 0) return;
    if (!all_read) return SetFailed(group);
    // For this rank's next kernel, which begins when this one has ended.
    StoreSignal(&own->arrived, uint32_t{0});
    StoreSignal(&own->ended, uint32_t{0});
    StoreSignal(&own->step, step);
  });
}

// What comes before the data of a call of two kernels, in one block.
struct GateArgs {
  static constexpr const char* kName = "collops_gate";
  PeerCall call;
};

template <class Block>
COLLOPS_DEVICE void Gate(const GateArgs& args, Block& block) {
  const Group& group = args.call.group;
  const Entered entered = Enter(args.call, block);
  if (entered.failed) return;
  block.Each([&](uint32_t thread) {
    if (thread == 0 && !entered.may_move) SetFailed(group);
    if (static_cast<int32_t>(thread) >= group.size) return;
    StoreSignal(&group.Head(group.rank)->addresses[thread], HeardAddresses(block)[thread]);
  });
}

// The kernel behind it.
template <class Args>
struct Gated {
  static constexpr const char* kName = Args::kGatedName;
  Args args;
};

// What the gate has heard.
template <class Block>
COLLOPS_DEVICE Entered BehindGate(const Group& group, Block& block) {
  uint64_t step = 0;
  const bool is_good = block.All([&](uint32_t thread) {
    step = LoadSignal(&group.Own()->step) + 1;
    if (static_cast<int32_t>(thread) < group.size) {
      HeardAddresses(block)[thread] = LoadSignal(&group.Head(group.rank)->addresses[thread]);
    }
    return thread != 0 || LoadSignal(&group.Own()->failed) == 0;
  });
  return {step, block.index(), is_good, !is_good};
}

// A kernel that moves data: move(entered) is false if it was stopped.
template <class Block, class F>
COLLOPS_DEVICE void InStep(const PeerCall& call, Block& block, F move) {
  const Entered entered = Enter(call, block);
  if (entered.failed) return;
  const bool moved = entered.may_move && move(entered);
  Leave(call, entered.step, moved, block);
}

// The same behind a gate.
template <class Block, class F>
COLLOPS_DEVICE void InGatedStep(const PeerCall& call, Block& block, F move) {
  const Entered entered = BehindGate(call.group, block);
  if (!entered.failed) Leave(call, entered.step, move(entered), block);
}

}  // namespace collops::cuda
