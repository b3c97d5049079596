#include "collops/comm/backends/ucx/schedule/simulation/call_program.h"

#include <algorithm>

#include "collops/comm/control/head_carrier.h"

namespace collops::ucx {
namespace {

constexpr int64_t kMostParts = 16;
// Sends of all ranks, about, above which those of a pair of ranks are not taken apart.
constexpr int64_t kMostSends = 4'000'000;
// The parts of the beginning.
enum { kCompare, kSendHeads, kAwaitHeads, kBegun };

// What the receiver of a head is told.
int HeadTask(int round) {
  return -2 - round;
}

}  // namespace

double MessagesUs(const LinkCosts& costs, int64_t messages, int64_t bytes) {
  const double messages_us = costs.message_us * static_cast<double>(messages);
  std::pair<int64_t, double> before = {0, 0.0};
  for (const auto& point : costs.stream_us) {
    if (bytes <= point.first) {
      const double part = static_cast<double>(bytes - before.first) /
                          static_cast<double>(std::max<int64_t>(point.first - before.first, 1));
      return messages_us + before.second + part * (point.second - before.second);
    }
    before = point;
  }
  if (before.first == 0) return messages_us;
  return messages_us +
         before.second * static_cast<double>(bytes) / static_cast<double>(before.first);
}

CallProgram::CallProgram(const HostMap& hosts, const CallToPredict& call)
    : hosts_(hosts),
      call_(call),
      item_(SizeOf(call.dtype)),
      states_(static_cast<size_t>(hosts.ranks())) {
  for (State& state : states_) state.round = call.costs.shared_cores > 0 ? kBefore : kCall;
}

Action CallProgram::Next(int rank) {
  State& state = StateOf(rank);
  while (state.actions.empty()) {
    if (state.round > kAfter) return {Action::Kind::kDone};
    const bool begun = state.part == kBegun || state.part == kEnd;
    if (begun && (state.round != kCall || state.part == kEnd)) {
      Next(&state);
    } else if (!(state.part >= 0 && state.part < kBegun ? Begin(rank, &state)
                                                        : Add(rank, &state))) {
      return {Action::Kind::kAwait};
    }
  }
  const Action next = state.actions.back();
  state.actions.pop_back();
  return next;
}

// The end of a round.
void CallProgram::Next(State* state) {
  if (state->round == kCall) state->actions.push_back({Action::Kind::kEnd});
  // Only ranks that share cores go on to a barrier.
  state->round += state->round == kCall && call_.costs.shared_cores == 0 ? 2 : 1;
  state->part = state->index = 0;
}

bool CallProgram::Begin(int rank, State* state) {
  if (state->part == kCompare) {
    if (RanksBeside(rank) > 1) {
      state->actions.push_back(Meeting(1));
      state->actions.back().counts = state->round == kCall;
    }
    if (state->round == kCall) state->actions.push_back({Action::Kind::kBegin});
    state->part = kSendHeads;
    return true;
  }
  if (state->part == kSendHeads && state->index + 1 < hosts_.hosts()) {
    SendHeads(rank, state);
    return true;
  }
  const int64_t heads = state->heads[static_cast<size_t>(state->round)];
  if (state->part == kAwaitHeads && heads + 1 < hosts_.hosts()) return false;
  ++state->part;
  state->index = 0;
  return true;
}

void CallProgram::SendHeads(int rank, State* state) {
  const int host = hosts_.OtherHost(hosts_.HostOf(rank), state->index++);
  for (const int to : hosts_.RanksOf(host)) {
    if (!hosts_.Speaks(rank, to)) continue;
    const int64_t attached = state->round == kCall ? BytesWithHead(rank, to) : 0;
    Action send;
    send.kind = Action::Kind::kSend;
    send.to = to;
    send.bytes = static_cast<int64_t>(sizeof(control::HostHead)) + attached;
    send.us = MessagesUs(call_.costs, 1, attached);
    send.task = HeadTask(state->round);
    send.counts = state->round == kCall;
    state->actions.push_back(send);
  }
}

void CallProgram::Arrived(int rank, int task) {
  State& state = StateOf(rank);
  for (int round = kBefore; round <= kAfter; ++round) {
    if (task == HeadTask(round)) {
      ++state.heads[static_cast<size_t>(round)];
      return;
    }
  }
  ++state.arrived;
  TaskArrived(rank, task);
}

Action CallProgram::Copy(int rank, int64_t bytes) const {
  Action copy;
  copy.kind = Action::Kind::kWork;
  const double rate = std::min(call_.costs.copy_rate,
                               call_.costs.memory_rate / static_cast<double>(RanksBeside(rank)));
  copy.us = copy.copies = static_cast<double>(bytes) / rate;
  return copy;
}

Action CallProgram::Meeting(int count) {
  Action meet;
  meet.kind = Action::Kind::kMeet;
  meet.meetings = count;
  return meet;
}

int64_t CallProgram::PartsOf(int64_t bytes) const {
  const int64_t ranks = hosts_.ranks();
  const int64_t most = std::clamp<int64_t>(kMostSends / (ranks * ranks), 1, kMostParts);
  return bytes == 0 ? 0 : std::min(most, Chunking{bytes, kStreamChunkBytes}.count());
}

void CallProgram::AddSends(int to, int64_t bytes, int64_t messages, State* state) const {
  const double us = MessagesUs(call_.costs, messages, bytes);
  const int64_t parts = PartsOf(bytes);
  for (int64_t part = 0; part < parts; ++part) {
    Action send;
    send.kind = Action::Kind::kSend;
    send.to = to;
    send.bytes = bytes * (part + 1) / parts - bytes * part / parts;
    send.messages = messages * (part + 1) / parts - messages * part / parts;
    send.us = us / static_cast<double>(parts);
    state->actions.push_back(send);
  }
}

}  // namespace collops::ucx
