#include "collops/comm/backends/ucx/schedule/simulation/gather_program.h"

namespace collops::ucx {
namespace {

enum { kShareOwn = 3, kSend, kAwaitData, kShareOthers };

}  // namespace

GatherProgram::GatherProgram(const HostMap& hosts, const CallToPredict& call)
    : CallProgram(hosts, call), schedule_(hosts_, call_.counts.data(), item_) {
  for (int rank = 0; rank < hosts.ranks(); ++rank) expected_.push_back(Expected(rank));
}

int64_t GatherProgram::Expected(int rank) const {
  int64_t messages = 0;
  for (int i = 0; i + 1 < hosts_.hosts(); ++i) {
    int64_t bytes = 0;
    const int host = hosts_.OtherHost(hosts_.HostOf(rank), i);
    for (const Transfer& come : schedule_.ReceivesFrom(rank, host)) {
      if (!come.with_head) bytes += come.count * item_;
    }
    messages += PartsOf(bytes);
  }
  return messages;
}

int64_t GatherProgram::BytesWithHead(int from, int to) const {
  const Transfer own = schedule_.OwnPiece(from, to);
  return own.with_head ? own.count * item_ : 0;
}

bool GatherProgram::Add(int rank, State* state) {
  switch (state->part) {
    case kShareOwn:
      ShareOwn(rank, state);
      ++state->part;
      return true;
    case kSend: {
      if (state->index + 1 >= hosts_.hosts()) {
        state->index = 0;
        ++state->part;
        return true;
      }
      const int host = hosts_.OtherHost(hosts_.HostOf(rank), state->index++);
      const std::vector<Transfer> transfers = schedule_.SendsTo(rank, host);
      for (size_t i = 0; i < transfers.size();) {
        const int to = transfers[i].to;
        int64_t bytes = 0;
        int64_t messages = 0;
        for (; i < transfers.size() && transfers[i].to == to; ++i) {
          if (transfers[i].with_head) continue;
          const int64_t stream = transfers[i].count * item_;
          bytes += stream;
          messages += StreamMessages(stream);
        }
        AddSends(to, bytes, messages, state);
      }
      return true;
    }
    case kAwaitData:
      if (state->arrived < expected_[static_cast<size_t>(rank)]) return false;
      ++state->part;
      return true;
    case kShareOthers:
      Share(rank, state);
      return true;
    default:
      state->part = kEnd;
      return true;
  }
}

// Each rank copies its block to its output and, for its peers, to where they read it.
void GatherProgram::ShareOwn(int rank, State* state) {
  const int64_t own = call_.counts[static_cast<size_t>(rank)] * item_;
  if (RanksBeside(rank) == 1) {
    state->actions.push_back(Copy(rank, own));
    return;
  }
  int64_t others = -own;
  for (const int other : hosts_.RanksOf(hosts_.HostOf(rank))) {
    others += call_.counts[static_cast<size_t>(other)] * item_;
  }
  state->actions.push_back(Copy(rank, others));
  state->actions.push_back(Meeting(1));
  state->actions.push_back(Copy(rank, 2 * own));
}

// One block of another host after the other. Where each rank has a core their meetings are
// simulated as one, which takes as long as all.
void GatherProgram::Share(int rank, State* state) {
  const int host = hosts_.HostOf(rank);
  if (RanksBeside(rank) == 1) {
    state->part = kEnd;
    return;
  }
  int64_t own = 0;
  int64_t others = 0;
  int meetings = 0;
  for (; state->index < hosts_.ranks(); ++state->index) {
    const int owner = state->index;
    const int64_t count = call_.counts[static_cast<size_t>(owner)];
    if (hosts_.HostOf(owner) == host || count == 0) continue;
    const int64_t piece = schedule_.PieceCount(owner, host, hosts_.LocalIndex(rank));
    own += piece * item_;
    others += (count - piece) * item_;
    ++meetings;
    if (call_.costs.shared_cores > 0) break;
  }
  ++state->index;
  if (meetings == 0) {
    state->part = kEnd;
    return;
  }
  state->actions.push_back(Copy(rank, others));
  state->actions.push_back(Meeting(meetings));
  state->actions.push_back(Copy(rank, own));
}

}  // namespace collops::ucx
