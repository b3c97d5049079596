#include "collops/comm/backends/ucx/schedule/simulation/stage_program.h"

#include <algorithm>

namespace collops::ucx {
namespace {

enum { kShare = 3, kStages };

}  // namespace

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

}  // namespace collops::ucx
