#include "collops/comm/backends/ucx/schedule/simulation/slice_program.h"

namespace collops::ucx {
namespace {

enum { kExchangeHost = 3, kSend, kAwaitSlices, kAddUp };

}  // namespace

int64_t SliceProgram::BytesWithHead(int from, int to) const {
  const Transfer slice = schedule_.Of(from, to);
  return slice.with_head ? slice.count * item_ : 0;
}

int64_t SliceProgram::Expected(int rank) const {
  int64_t messages = 0;
  for (int from = 0; from < hosts_.ranks(); ++from) {
    if (hosts_.HostOf(from) == hosts_.HostOf(rank)) continue;
    const Transfer slice = schedule_.Of(from, rank);
    if (!slice.with_head) messages += PartsOf(slice.count * item_);
  }
  return messages;
}

bool SliceProgram::Add(int rank, State* state) {
  switch (state->part) {
    case kExchangeHost:
      ExchangeHost(rank, state);
      ++state->part;
      return true;
    case kSend: {
      if (state->index + 1 >= hosts_.hosts()) {
        // What is still to arrive counts from below 0.
        state->arrived -= Expected(rank);
        ++state->part;
        return true;
      }
      const int host = hosts_.OtherHost(hosts_.HostOf(rank), state->index++);
      for (const int to : hosts_.RanksOf(host)) {
        const Transfer slice = schedule_.Of(rank, to);
        const int64_t bytes = slice.count * item_;
        if (slice.with_head || bytes == 0) continue;
        AddSends(to, bytes, StreamMessages(bytes), state);
      }
      return true;
    }
    case kAwaitSlices:
      if (state->arrived < 0) return false;
      ++state->part;
      return true;
    case kAddUp: {
      // Every slice is read, and the sum written: a copy reads and writes.
      const int64_t bytes = call_.counts[static_cast<size_t>(rank)] * item_;
      state->actions.push_back(Copy(rank, bytes * (hosts_.ranks() + 1) / 2));
      ++state->part;
      return true;
    }
    default:
      state->part = kEnd;
      return true;
  }
}

// Each rank copies its slices for its peers to where they read them, and theirs for it from there.
void SliceProgram::ExchangeHost(int rank, State* state) {
  if (RanksBeside(rank) == 1) return;
  const int64_t own = call_.counts[static_cast<size_t>(rank)] * item_;
  int64_t others = -own;
  for (const int other : hosts_.RanksOf(hosts_.HostOf(rank))) {
    others += call_.counts[static_cast<size_t>(other)] * item_;
  }
  state->actions.push_back(Copy(rank, own * (RanksBeside(rank) - 1)));
  state->actions.push_back(Meeting(1));
  state->actions.push_back(Copy(rank, others));
}

}  // namespace collops::ucx
