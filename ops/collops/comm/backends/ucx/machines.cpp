// What a call on several hosts would cost: its simulation, and the memory that it needs.

#include <algorithm>
#include <memory>
#include <utility>

#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/ucx/backend.h"
#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/backends/ucx/simulation.h"
#include "collops/comm/control/board.h"

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

Status CheckCall(const CallToPredict& call) {
  const size_t ranks = call.host_of.size();
  COLLOPS_CHECK_ARG(ranks >= 1, ERROR_INVALID_PARAM, "a prediction needs at least one rank");
  COLLOPS_CHECK_ARG(call.counts.size() == ranks, ERROR_INVALID_PARAM, "counts must have ", ranks,
                    " numbers, one for each rank, got ", call.counts.size());
  COLLOPS_CHECK_ARG(SizeOf(call.dtype) > 0, ERROR_INVALID_PARAM,
                    "a prediction needs a type of elements");
  int hosts = 0;
  for (size_t r = 0; r < ranks; ++r) {
    COLLOPS_CHECK_ARG(call.host_of[r] >= 0 && call.host_of[r] < static_cast<int>(ranks),
                      ERROR_INVALID_PARAM, "host_of[", r, "] must be a number below ", ranks,
                      ", got ", call.host_of[r]);
    COLLOPS_CHECK_ARG(call.counts[r] >= 0, ERROR_INVALID_PARAM, "counts[", r,
                      "] must be >= 0, got ", call.counts[r]);
    hosts = std::max(hosts, call.host_of[r] + 1);
  }
  std::vector<bool> used(static_cast<size_t>(hosts));
  for (const int host : call.host_of) used[static_cast<size_t>(host)] = true;
  const auto unused = std::find(used.begin(), used.end(), false);
  COLLOPS_CHECK_ARG(unused == used.end(), ERROR_INVALID_PARAM, "no rank is on host ",
                    unused - used.begin());
  const LinkCosts& costs = call.costs;
  COLLOPS_CHECK_ARG(costs.network_rate > 0 && costs.copy_rate > 0 && costs.memory_rate > 0,
                    ERROR_INVALID_PARAM, "rates must be above 0");
  return Ok();
}

int64_t BytesOf(const ReductionPlan& plan) {
  int64_t bytes = sizeof(plan);
  for (const ReductionStage& stage : plan.stages) {
    bytes += static_cast<int64_t>(sizeof(stage) + stage.sources.size() * sizeof(StageSource));
  }
  return bytes;
}

// For a reduction, of the rank of the host that needs most.
void AddReduction(const HostMap& hosts, const CallToPredict& call,
                  const std::vector<ReductionPlan>& plans, int host, PredictedMemory* memory) {
  const int64_t* const counts = call.counts.data();
  const ReductionElements elements = ElementsOf(call.dtype, call.op);
  const SliceSchedule whole(hosts, counts, elements.bytes);
  for (const int rank : hosts.RanksOf(host)) {
    int64_t shared = 0;
    for (size_t owner = 0; owner < plans.size(); ++owner) {
      if (IsShared(plans[owner], rank)) shared += call.counts[owner] * elements.bytes;
    }
    const int64_t scratch = plans.empty() ? whole.ScratchBytes(rank)
                                          : ReductionScratchBytes(plans, counts, elements, rank);
    memory->scratch_bytes = std::max(memory->scratch_bytes, scratch);
    memory->shared_bytes = std::max(memory->shared_bytes, shared);
  }
  for (const ReductionPlan& plan : plans) memory->plan_bytes += BytesOf(plan);
}

PredictedMemory MemoryOf(const HostMap& hosts, int host) {
  PredictedMemory memory;
  const auto here = hosts.RanksOf(host).size();
  memory.segment_bytes = control::Board::Bytes(hosts.ranks());
  if (here > 1) memory.segment_bytes += shm::SegmentBytes(static_cast<int>(here));
  // A rank speaks to as many ranks of a host as there are for each one here.
  int64_t targets = 0;
  for (int other = 0; other < hosts.hosts(); ++other) {
    if (other == host) continue;
    targets += static_cast<int64_t>((hosts.RanksOf(other).size() + here - 1) / here);
  }
  memory.heads_bytes = Heads::Bytes(hosts.hosts() - 1, targets);
  return memory;
}

}  // namespace

Status Predict(const CallToPredict& call, Prediction* prediction) {
  COLLOPS_RETURN_IF_ERROR(CheckCall(call));
  const HostMap hosts(call.host_of, 0);
  std::vector<ReductionPlan> plans;
  if (call.reduces) {
    plans = PlanReductions(hosts, call.counts.data(), ElementsOf(call.dtype, call.op));
  }
  const std::unique_ptr<CallProgram> program = MakeProgram(hosts, call, plans);
  Machines machines(hosts, call.costs);
  COLLOPS_CHECK_ARG(machines.Run(program.get()), ERROR_RT_FAIL,
                    "the simulated ranks wait for each other for ever");
  prediction->time_us = machines.time_us();
  prediction->hosts = machines.hosts();
  prediction->link_bytes = machines.link_bytes();
  for (int host = 0; host < hosts.hosts(); ++host) {
    prediction->memory.push_back(MemoryOf(hosts, host));
    if (call.reduces) AddReduction(hosts, call, plans, host, &prediction->memory.back());
  }
  return Ok();
}

}  // namespace collops::ucx
