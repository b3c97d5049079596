#include "collops/comm/backends/ucx/simulation.h"

#include <algorithm>

#include "collops/comm/control/head_carrier.h"

namespace collops::ucx {
namespace {

// In later turns a rank looks once, which is this part of its first turn: Worker::Until().
constexpr double kLooksPerTurn = 32;
constexpr double kLeastTurnUs = 0.1;  // so that time passes
// Turns without news, of ranks that share a core, after which nothing will come any more.
constexpr int64_t kMostIdleTurns = 10'000'000;

}  // namespace

Machines::Machines(const HostMap& hosts, const LinkCosts& costs)
    : hosts_(hosts),
      costs_(costs),
      turn_us_(std::max(costs.turn_us, kLeastTurnUs)),
      ranks_(static_cast<size_t>(hosts.ranks())),
      devices_(static_cast<size_t>(hosts.hosts())),
      totals_(static_cast<size_t>(hosts.hosts())),
      link_bytes_(static_cast<size_t>(hosts.hosts()) * static_cast<size_t>(hosts.hosts())),
      met_(static_cast<size_t>(hosts.ranks()) * static_cast<size_t>(hosts.ranks())) {
  const int cores = costs.shared_cores > 0 ? costs.shared_cores : hosts.ranks();
  cores_.resize(static_cast<size_t>(cores));
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    core_of_.push_back(rank % cores);
    CoreOf(rank).ranks.push_back(rank);
    ++CoreOf(rank).unfinished;
    At(rank).patience_us = turn_us_;
  }
}

bool Machines::Run(CallProgram* program) {
  program_ = program;
  unfinished_ = hosts_.ranks();
  for (size_t core = 0; core < cores_.size(); ++core) {
    if (!cores_[core].ranks.empty()) Wake(static_cast<int>(core), 0);
  }
  while (unfinished_ > 0 && !events_.empty() && idle_turns_ < kMostIdleTurns) {
    const auto [at, core, stamp] = events_.top();
    events_.pop();
    if (stamp == cores_[static_cast<size_t>(core)].stamp) Continue(core, at);
  }
  AddUp();
  return unfinished_ == 0;
}

void Machines::Wake(int core, double at) {
  events_.emplace(at, core, ++cores_[static_cast<size_t>(core)].stamp);
}

void Machines::Continue(int core_index, double now) {
  Core& core = cores_[static_cast<size_t>(core_index)];
  for (;;) {
    const int rank = core.ranks[core.current];
    double until = now;
    if (!At(rank).done && Step(rank, now, &until)) {
      At(rank).patience_us = turn_us_;
      core.yields_at = -1;
      idle_turns_ = 0;
      if (!events_.empty() && std::get<double>(events_.top()) <= until)
        return Wake(core_index, until);
      now = until;
      continue;
    }
    if (core.unfinished == 0) return;
    const bool alone = core.unfinished == 1 && !At(rank).done;
    if (core.yields_at < 0) {
      core.yields_at = now + At(rank).patience_us;
    }
    const Rank& waiting = At(rank);
    double next = -1;
    if (waiting.in_meeting) {
      next = waiting.released;
    } else if (!waiting.done && !waiting.inbox.empty()) {
      next = waiting.inbox.front().at;
    }
    if (next >= 0 && (alone || next <= core.yields_at))
      return Wake(core_index, std::max(now, next));
    if (alone) return;  // a message or the end of a meeting wakes it
    if (now < core.yields_at) return Wake(core_index, core.yields_at);
    Yield(core_index);
  }
}

void Machines::Yield(int core_index) {
  Core& core = cores_[static_cast<size_t>(core_index)];
  At(core.ranks[core.current]).patience_us = turn_us_ / kLooksPerTurn;
  do {
    core.current = (core.current + 1) % core.ranks.size();
  } while (At(core.ranks[core.current]).done);
  core.yields_at = -1;
  ++idle_turns_;
}

bool Machines::Step(int rank, double now, double* until) {
  Rank& self = At(rank);
  if (self.in_meeting) {
    if (self.released < 0 || self.released > now) return false;
    self.in_meeting = false;
    self.released = -1;
  }
  if (!self.inbox.empty() && self.inbox.front().at <= now) {
    const Message message = self.inbox.front();
    self.inbox.pop_front();
    program_->Arrived(rank, message.task);
    self.messages_us += message.us;
    *until = now + message.us;
    return true;
  }
  const Action action = program_->Next(rank);
  switch (action.kind) {
    case Action::Kind::kAwait:
      return false;
    case Action::Kind::kDone:
      self.done = true;
      --CoreOf(rank).unfinished;
      return false;
    case Action::Kind::kBegin:
    case Action::Kind::kEnd:
      Mark(rank, action.kind, now);
      return true;
    case Action::Kind::kMeet:
      Meet(rank, action, now);
      return true;
    case Action::Kind::kSend:
      Send(rank, action, now);
      self.messages_us += action.us;
      *until = now + action.us;
      return true;
    case Action::Kind::kWork:
      self.copies_us += action.copies;
      *until = now + action.us;
      return true;
  }
  return false;
}

void Machines::Send(int rank, const Action& action, double now) {
  const int from = hosts_.HostOf(rank);
  const int to = hosts_.HostOf(action.to);
  Host& sender = devices_[static_cast<size_t>(from)];
  Host& receiver = devices_[static_cast<size_t>(to)];
  const double wire_us = static_cast<double>(action.bytes) / costs_.network_rate;
  const double leaves = std::max(now, sender.sender_free);
  sender.sender_free = leaves + wire_us;
  sender.sender_us += wire_us;
  const double comes = std::max(leaves + costs_.latency_us, receiver.receiver_free);
  receiver.receiver_free = comes + wire_us;
  receiver.receiver_us += wire_us;
  Rank& other = At(action.to);
  other.last_arrival =
      std::max({other.last_arrival, receiver.receiver_free, now + action.us + costs_.latency_us});
  other.inbox.push_back({other.last_arrival, action.us, action.task});
  if (!action.counts) return Deliver(action.to);
  totals_[static_cast<size_t>(from)].sent_bytes += action.bytes;
  totals_[static_cast<size_t>(from)].sent_messages += action.messages;
  totals_[static_cast<size_t>(to)].received_bytes += action.bytes;
  totals_[static_cast<size_t>(to)].received_messages += action.messages;
  const auto links = static_cast<size_t>(hosts_.hosts());
  link_bytes_[static_cast<size_t>(from) * links + static_cast<size_t>(to)] += action.bytes;
  const auto one = static_cast<size_t>(rank);
  const auto two = static_cast<size_t>(action.to);
  met_[one * ranks_.size() + two] = met_[two * ranks_.size() + one] = true;
  Deliver(action.to);
}

// A rank that waits, and has its core, takes the message once it is there.
void Machines::Deliver(int rank) {
  const Rank& other = At(rank);
  const Core& core = CoreOf(rank);
  const bool waits = core.yields_at >= 0 && core.ranks[core.current] == rank;
  if (other.inbox.size() > 1 || other.in_meeting || !waits) return;
  if (core.unfinished == 1 || other.last_arrival <= core.yields_at) {
    Wake(core_of_[static_cast<size_t>(rank)], other.last_arrival);
  }
}

void Machines::Meet(int rank, const Action& action, double now) {
  const int host = hosts_.HostOf(rank);
  Host& device = devices_[static_cast<size_t>(host)];
  At(rank).in_meeting = true;
  const auto& here = hosts_.RanksOf(host);
  if (++device.in_meeting < static_cast<int>(here.size())) return;
  device.in_meeting = 0;
  if (action.counts) {
    totals_[static_cast<size_t>(host)].meetings += action.meetings;
    totals_[static_cast<size_t>(host)].meetings_us += costs_.meeting_us * action.meetings;
  }
  const double end = now + costs_.meeting_us * action.meetings;
  for (const int other : here) {
    At(other).released = end;
    Core& core = CoreOf(other);
    if (other != rank && core.yields_at >= 0 && core.ranks[core.current] == other &&
        (core.unfinished == 1 || end <= core.yields_at)) {
      Wake(core_of_[static_cast<size_t>(other)], end);
    }
  }
}

void Machines::Mark(int rank, Action::Kind kind, double now) {
  if (kind == Action::Kind::kBegin) {
    if (begun_us_ < 0) begun_us_ = now;
    return;
  }
  --unfinished_;
  ended_us_ = std::max(ended_us_, now);
  PredictedHost& host = totals_[static_cast<size_t>(hosts_.HostOf(rank))];
  host.time_us = std::max(host.time_us, now - begun_us_);
}

void Machines::AddUp() {
  const auto size = static_cast<std::ptrdiff_t>(ranks_.size());
  for (int host = 0; host < hosts_.hosts(); ++host) {
    PredictedHost& total = totals_[static_cast<size_t>(host)];
    const Host& device = devices_[static_cast<size_t>(host)];
    total.network_us = std::max(device.sender_us, device.receiver_us);
    for (const int rank : hosts_.RanksOf(host)) {
      total.messages_us = std::max(total.messages_us, At(rank).messages_us);
      total.copies_us = std::max(total.copies_us, At(rank).copies_us);
      const auto row = met_.begin() + static_cast<std::ptrdiff_t>(rank) * size;
      const int64_t peers = std::count(row, row + size, true);
      total.most_peers = std::max(total.most_peers, peers);
      total.all_peers += peers;
    }
  }
}

namespace {

constexpr int64_t kMostParts = 16;
// Sends of all ranks, about, above which those of a pair of ranks are not taken apart.
constexpr int64_t kMostSends = 4'000'000;

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
