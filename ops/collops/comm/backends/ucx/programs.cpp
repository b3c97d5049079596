// The programs of the ranks in a simulated call.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "collops/comm/backends/ucx/simulation.h"
#include "collops/comm/control/step.h"

namespace collops::ucx {
namespace {

constexpr int64_t kMostParts = 16;
// Sends of all ranks, about, above which those of a pair of ranks are not taken apart.
constexpr int64_t kMostSends = 4'000'000;

// What the receiver of a head is told.
int HeadTask(int round) {
  return -2 - round;
}

// The time of a rank's CPU, at either end, for all that it sends to another one: so many messages,
// and their bytes together.
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

}  // namespace

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

namespace {

// A call in which the host's ranks share what they have, pieces cross, and the ranks do the rest.
class PiecesProgram : public CallProgram {
 public:
  using CallProgram::CallProgram;

 protected:
  virtual const Schedule& schedule() const = 0;
  int64_t BytesOf(int rank) const { return call_.counts[static_cast<size_t>(rank)] * item_; }
  // Of the other ranks of the rank's host.
  int64_t BytesBeside(int rank) const {
    int64_t bytes = -BytesOf(rank);
    for (const int other : hosts_.RanksOf(hosts_.HostOf(rank))) bytes += BytesOf(other);
    return bytes;
  }
  virtual void ShareOwn(int rank, State* state) = 0;
  // Again and again, until it sets the part to kEnd.
  virtual void DoRest(int rank, State* state) = 0;

 private:
  enum { kShareOwn = kBegun, kSend, kAwaitData, kRest };
  int64_t BytesWithHead(int from, int to) const override {
    const Piece own = schedule().OwnPiece(from, to);
    return own.with_head ? own.count * item_ : 0;
  }
  // Visits the peers of pieces, each with the bytes and messages that do not go with a head.
  template <typename Visit>
  void ForEachPeer(const std::vector<Piece>& pieces, int Piece::* peer, Visit&& visit) const {
    for (size_t i = 0; i < pieces.size();) {
      const int one = pieces[i].*peer;
      int64_t bytes = 0;
      int64_t messages = 0;
      for (; i < pieces.size() && pieces[i].*peer == one; ++i) {
        if (pieces[i].with_head) continue;
        const int64_t stream = pieces[i].count * item_;
        bytes += stream;
        messages += StreamMessages(stream);
      }
      visit(one, bytes, messages);
    }
  }
  int64_t Expected(int rank) const;
  bool Add(int rank, State* state) override;
};

// Messages without heads that come to a rank.
int64_t PiecesProgram::Expected(int rank) const {
  int64_t expected = 0;
  for (int i = 0; i + 1 < hosts_.hosts(); ++i) {
    const int host = hosts_.OtherHost(hosts_.HostOf(rank), i);
    ForEachPeer(schedule().ReceivesFrom(rank, host), &Piece::from,
                [&](int, int64_t bytes, int64_t) { expected += PartsOf(bytes); });
  }
  return expected;
}

bool PiecesProgram::Add(int rank, State* state) {
  switch (state->part) {
    case kShareOwn:
      ShareOwn(rank, state);
      ++state->part;
      return true;
    case kSend: {
      if (state->index + 1 >= hosts_.hosts()) {
        // What is still to arrive counts from below 0.
        state->arrived -= Expected(rank);
        state->index = 0;
        ++state->part;
        return true;
      }
      const int host = hosts_.OtherHost(hosts_.HostOf(rank), state->index++);
      ForEachPeer(
          schedule().SendsTo(rank, host), &Piece::to,
          [&](int to, int64_t bytes, int64_t messages) { AddSends(to, bytes, messages, state); });
      return true;
    }
    case kAwaitData:
      if (state->arrived < 0) return false;
      ++state->part;
      return true;
    default:
      DoRest(rank, state);
      return true;
  }
}

// AllGatherV: at the end the host shares each block of other hosts, in a meeting of its own.
class GatherProgram : public PiecesProgram {
 public:
  GatherProgram(const HostMap& hosts, const CallToPredict& call)
      : PiecesProgram(hosts, call), schedule_(hosts_, call_.counts.data(), item_) {}

 private:
  const Schedule& schedule() const override { return schedule_; }
  void ShareOwn(int rank, State* state) override;
  void DoRest(int rank, State* state) override;

  const GatherSchedule schedule_;
};

// Each rank copies its block to its output and, for its peers, to where they read it.
void GatherProgram::ShareOwn(int rank, State* state) {
  if (RanksBeside(rank) == 1) {
    state->actions.push_back(Copy(rank, BytesOf(rank)));
    return;
  }
  state->actions.push_back(Copy(rank, BytesBeside(rank)));
  state->actions.push_back(Meeting(1));
  state->actions.push_back(Copy(rank, 2 * BytesOf(rank)));
}

// One block of another host after the other. Where each rank has a core their meetings are
// simulated as one, which takes as long as all.
void GatherProgram::DoRest(int rank, State* state) {
  const int host = hosts_.HostOf(rank);
  int64_t own = 0;
  int64_t others = 0;
  int meetings = 0;
  for (; state->index < hosts_.ranks() && RanksBeside(rank) > 1; ++state->index) {
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

// ReduceScatterV in which every slice crosses as it is: at the end each rank adds up those of all
// ranks.
class SliceProgram : public PiecesProgram {
 public:
  SliceProgram(const HostMap& hosts, const CallToPredict& call)
      : PiecesProgram(hosts, call), schedule_(hosts_, call_.counts.data(), item_) {}

 private:
  const Schedule& schedule() const override { return schedule_; }
  // Each rank copies its slices for its peers to where they read them, and theirs for it from
  // there.
  void ShareOwn(int rank, State* state) override {
    if (RanksBeside(rank) == 1) return;
    state->actions.push_back(Copy(rank, BytesOf(rank) * (RanksBeside(rank) - 1)));
    state->actions.push_back(Meeting(1));
    state->actions.push_back(Copy(rank, BytesBeside(rank)));
  }
  // Every slice is read, and the sum written: a copy reads and writes.
  void DoRest(int rank, State* state) override {
    state->actions.push_back(Copy(rank, BytesOf(rank) * (hosts_.ranks() + 1) / 2));
    state->part = kEnd;
  }

  const SliceSchedule schedule_;
};

// ReduceScatterV by plans: the host's ranks share slices, then each makes its stages, chunk by
// chunk, as their sources come.
class StageProgram : public CallProgram {
 public:
  // `plans`: by owner, not empty.
  StageProgram(const HostMap& hosts, const CallToPredict& call,
               const std::vector<ReductionPlan>& plans);

 private:
  enum { kShare = kBegun, kStages };
  // One chunk of one stage.
  struct Task {
    int worker = 0;
    int consumer = -1;  // the task that takes the result
    int missing = 0;    // results of others that have not come
    int64_t bytes = 0;  // that cross
    int64_t read_bytes = 0;
  };
  int64_t BytesWithHead(int, int) const override { return 0; }
  bool Add(int rank, State* state) override;
  void TaskArrived(int rank, int task) override;
  void AddPlan(int owner, const ReductionPlan& plan);

  const ReductionElements elements_;
  std::vector<Task> tasks_;
  std::map<std::pair<int, int>, int64_t> pair_bytes_;  // from a rank to another
  std::vector<std::vector<int>> ready_;                // by rank; the next one is the last
  std::vector<int64_t> unfinished_;                    // by rank
  std::vector<int64_t> shared_bytes_;                  // that a rank copies for its host, by rank
};

StageProgram::StageProgram(const HostMap& hosts, const CallToPredict& call,
                           const std::vector<ReductionPlan>& plans)
    : CallProgram(hosts, call),
      elements_(ElementsOf(call.dtype, call.op)),
      ready_(static_cast<size_t>(hosts.ranks())),
      unfinished_(static_cast<size_t>(hosts.ranks())),
      shared_bytes_(static_cast<size_t>(hosts.ranks())) {
  for (size_t owner = 0; owner < plans.size(); ++owner) {
    if (call.counts[owner] > 0) AddPlan(static_cast<int>(owner), plans[owner]);
  }
  for (size_t i = tasks_.size(); i-- > 0;) {
    const Task& task = tasks_[i];
    ++unfinished_[static_cast<size_t>(task.worker)];
    if (task.missing == 0) {
      ready_[static_cast<size_t>(task.worker)].push_back(static_cast<int>(i));
    }
  }
}

void StageProgram::AddPlan(int owner, const ReductionPlan& plan) {
  const int64_t chunk = kStreamChunkBytes / elements_.sum_bytes;
  const int64_t count = call_.counts[static_cast<size_t>(owner)];
  const auto stages = static_cast<int>(plan.stages.size());
  for (const int rank : hosts_.RanksOf(hosts_.HostOf(owner))) {
    if (IsShared(plan, rank)) shared_bytes_[static_cast<size_t>(rank)] += count * item_;
  }
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t length = std::min(chunk, count - begin);
    const auto first = static_cast<int>(tasks_.size());
    for (int i = 0; i < stages; ++i) {
      const ReductionStage& stage = plan.stages[static_cast<size_t>(i)];
      Task task;
      task.worker = stage.worker;
      if (stage.consumer >= 0) {
        task.consumer = first + stage.consumer;
        task.bytes = length * ItemBytes(stage.result, elements_);
        const int to = plan.stages[static_cast<size_t>(stage.consumer)].worker;
        pair_bytes_[{stage.worker, to}] += task.bytes;
      }
      for (const StageSource& source : stage.sources) task.missing += source.is_slice ? 0 : 1;
      // A slice, or a result, as it is takes no work.
      if (stage.sources.size() > 1) {
        task.read_bytes = length * item_ * static_cast<int64_t>(stage.sources.size() + 1) / 2;
      }
      tasks_.push_back(task);
    }
  }
}

bool StageProgram::Add(int rank, State* state) {
  if (state->part == kShare) {
    ++state->part;
    if (RanksBeside(rank) == 1) return true;
    state->actions.push_back(Meeting(1));
    state->actions.push_back(Copy(rank, shared_bytes_[static_cast<size_t>(rank)]));
    return true;
  }
  if (state->part != kStages) {
    state->part = kEnd;
    return true;
  }
  std::vector<int>& ready = ready_[static_cast<size_t>(rank)];
  if (ready.empty()) {
    if (unfinished_[static_cast<size_t>(rank)] > 0) return false;
    ++state->part;
    return true;
  }
  const Task& task = tasks_[static_cast<size_t>(ready.back())];
  ready.pop_back();
  --unfinished_[static_cast<size_t>(rank)];
  if (task.consumer >= 0) {
    Action send;
    send.kind = Action::Kind::kSend;
    send.to = tasks_[static_cast<size_t>(task.consumer)].worker;
    send.bytes = task.bytes;
    const int64_t all = pair_bytes_.at({rank, send.to});
    const double streams_us = MessagesUs(call_.costs, 0, all) * static_cast<double>(task.bytes);
    send.us = call_.costs.message_us + streams_us / static_cast<double>(all);
    send.task = task.consumer;
    state->actions.push_back(send);
  }
  state->actions.push_back(Copy(rank, task.read_bytes));
  return true;
}

void StageProgram::TaskArrived(int rank, int task) {
  if (--tasks_[static_cast<size_t>(task)].missing == 0) {
    ready_[static_cast<size_t>(rank)].push_back(task);
  }
}

}  // namespace

std::unique_ptr<CallProgram> MakeProgram(const HostMap& hosts, const CallToPredict& call,
                                         const std::vector<ReductionPlan>& plans) {
  if (!call.reduces) return std::make_unique<GatherProgram>(hosts, call);
  if (plans.empty()) return std::make_unique<SliceProgram>(hosts, call);
  return std::make_unique<StageProgram>(hosts, call, plans);
}

}  // namespace collops::ucx
