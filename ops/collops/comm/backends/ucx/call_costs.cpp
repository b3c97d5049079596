// What a call on several hosts would need, by the schedules that the calls themselves follow.

#include <algorithm>
#include <utility>

#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/ucx/backend.h"
#include "collops/comm/backends/ucx/link.h"
#include "collops/comm/backends/ucx/schedule.h"
#include "collops/comm/control/board.h"
#include "collops/comm/control/step.h"

namespace collops::ucx {
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
  return Ok();
}

// Adds up what all ranks send, copy and wait for.
class CallCosts {
 public:
  CallCosts(const HostMap& hosts, const CallToPredict& call)
      : hosts_(hosts),
        call_(call),
        item_(SizeOf(call.dtype)),
        ranks_(static_cast<size_t>(hosts.ranks())),
        met_(ranks_.size() * ranks_.size()),
        found_{hosts.hosts() > 1 ? 1 : 0, {}, {}, {}} {
    found_.hosts.resize(static_cast<size_t>(hosts.hosts()));
    found_.link_bytes.resize(found_.hosts.size() * found_.hosts.size());
  }

  // One of these, for the call: AllGatherV; ReduceScatterV in which slices cross as they are, or by
  // plans.
  void AddGather(const GatherSchedule& schedule);
  void AddSlices();
  void AddPlans(const std::vector<ReductionPlan>& plans);

  Prediction Found();

 private:
  struct Rank {
    int64_t messages = 0;
    int64_t copied_bytes = 0;
  };

  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  int64_t BytesOf(int rank) const { return call_.counts[static_cast<size_t>(rank)] * item_; }
  const std::vector<int>& Beside(int rank) const { return hosts_.RanksOf(hosts_.HostOf(rank)); }
  int64_t BytesBeside(int rank) const {
    int64_t bytes = 0;
    for (const int other : Beside(rank)) bytes += other == rank ? 0 : BytesOf(other);
    return bytes;
  }
  PredictedHost& Host(int host) { return found_.hosts[static_cast<size_t>(host)]; }
  void Send(int from, int to, int64_t bytes, int64_t messages);
  // The heads, and the blocks or slices that cross as they are.
  void AddPieces(const Schedule& schedule);
  // The ranks of every host compare their calls, and share what they have.
  void AddMeetings();
  void AddStage(int owner, const ReductionPlan& plan, size_t stage, std::vector<int64_t>* trips);

  const HostMap& hosts_;
  const CallToPredict& call_;
  const int64_t item_;
  std::vector<Rank> ranks_;
  std::vector<bool> met_;  // [a * ranks + b]: a message goes from a to b, or from b to a
  Prediction found_;
};

void CallCosts::Send(int from, int to, int64_t bytes, int64_t messages) {
  const int source = hosts_.HostOf(from);
  const int target = hosts_.HostOf(to);
  Host(source).sent_bytes += bytes;
  Host(source).sent_messages += messages;
  Host(target).received_bytes += bytes;
  Host(target).received_messages += messages;
  At(from).messages += messages;
  At(to).messages += messages;
  found_.link_bytes[static_cast<size_t>(source * hosts_.hosts() + target)] += bytes;
  const auto one = static_cast<size_t>(from);
  const auto two = static_cast<size_t>(to);
  met_[one * ranks_.size() + two] = met_[two * ranks_.size() + one] = true;
}

void CallCosts::AddMeetings() {
  for (int host = 0; host < hosts_.hosts(); ++host) {
    if (hosts_.RanksOf(host).size() > 1) Host(host).meetings += 2;
  }
}

void CallCosts::AddPieces(const Schedule& schedule) {
  const int64_t head = sizeof(control::HostHead);
  for (int rank = 0; rank < hosts_.ranks(); ++rank) {
    for (int i = 0; i + 1 < hosts_.hosts(); ++i) {
      const int host = hosts_.OtherHost(hosts_.HostOf(rank), i);
      for (const int to : hosts_.RanksOf(host)) {
        if (!hosts_.Speaks(rank, to)) continue;
        const Piece own = schedule.OwnPiece(rank, to);
        Send(rank, to, head + (own.with_head ? own.count * item_ : 0), 1);
      }
      for (const Piece& piece : schedule.SendsTo(rank, host)) {
        if (piece.with_head) continue;
        const int64_t bytes = piece.count * item_;
        Send(rank, piece.to, bytes, Chunking{bytes, kStreamChunkBytes}.messages());
        found_.trips = 2;
      }
    }
  }
}

// Each rank copies its block to its output and, for its peers, to where they read it; each block of
// other hosts is then shared in a meeting of its own.
void CallCosts::AddGather(const GatherSchedule& schedule) {
  AddPieces(schedule);
  AddMeetings();
  for (int rank = 0; rank < hosts_.ranks(); ++rank) {
    const bool alone = Beside(rank).size() == 1;
    At(rank).copied_bytes += alone ? BytesOf(rank) : BytesBeside(rank) + 2 * BytesOf(rank);
  }
  for (int owner = 0; owner < hosts_.ranks(); ++owner) {
    for (int host = 0; host < hosts_.hosts() && BytesOf(owner) > 0; ++host) {
      if (host == hosts_.HostOf(owner) || hosts_.RanksOf(host).size() == 1) continue;
      ++Host(host).meetings;
      for (const int rank : hosts_.RanksOf(host)) At(rank).copied_bytes += BytesOf(owner);
    }
  }
}

// Each rank copies its slices for its peers to where they read them, and theirs from there; then
// every slice is read, and the sum written: a copy reads and writes.
void CallCosts::AddSlices() {
  AddPieces(SliceSchedule(hosts_, call_.counts.data(), item_));
  AddMeetings();
  for (int rank = 0; rank < hosts_.ranks(); ++rank) {
    const auto others = static_cast<int64_t>(Beside(rank).size()) - 1;
    if (others > 0) At(rank).copied_bytes += BytesOf(rank) * others + BytesBeside(rank);
    At(rank).copied_bytes += BytesOf(rank) * (hosts_.ranks() + 1) / 2;
  }
}

// The host's ranks share slices, then each makes its stages, chunk by chunk, as their sources come.
void CallCosts::AddPlans(const std::vector<ReductionPlan>& plans) {
  const std::vector<int64_t> nothing(ranks_.size());
  AddPieces(SliceSchedule(hosts_, nothing.data(), item_));  // the heads alone
  AddMeetings();
  for (size_t i = 0; i < plans.size(); ++i) {
    const int owner = static_cast<int>(i);
    if (BytesOf(owner) == 0) continue;
    for (const int rank : Beside(owner)) {
      if (IsShared(plans[i], rank)) At(rank).copied_bytes += BytesOf(owner);
    }
    std::vector<int64_t> trips(plans[i].stages.size());
    for (size_t stage = 0; stage < trips.size(); ++stage) {
      AddStage(owner, plans[i], stage, &trips);
    }
  }
}

void CallCosts::AddStage(int owner, const ReductionPlan& plan, size_t index,
                         std::vector<int64_t>* trips) {
  const ReductionStage& stage = plan.stages[index];
  const ReductionElements elements = ElementsOf(call_.dtype, call_.op);
  int64_t& own = (*trips)[index];
  for (const StageSource& source : stage.sources) {
    if (!source.is_slice) own = std::max(own, (*trips)[static_cast<size_t>(source.index)]);
  }
  // A slice, or a result, as it is takes no work.
  const auto sources = static_cast<int64_t>(stage.sources.size());
  if (sources > 1) At(stage.worker).copied_bytes += BytesOf(owner) * (sources + 1) / 2;
  if (stage.consumer < 0) return;
  const int64_t item = ItemBytes(stage.result, elements);
  const int64_t chunk_bytes = kStreamChunkBytes / elements.sum_bytes * item;
  const int64_t bytes = call_.counts[static_cast<size_t>(owner)] * item;
  Send(stage.worker, plan.stages[static_cast<size_t>(stage.consumer)].worker, bytes,
       Chunking{bytes, chunk_bytes}.messages());
  found_.trips = std::max(found_.trips, 1 + ++own);
}

Prediction CallCosts::Found() {
  const auto size = static_cast<std::ptrdiff_t>(ranks_.size());
  for (int rank = 0; rank < hosts_.ranks(); ++rank) {
    PredictedHost& host = Host(hosts_.HostOf(rank));
    const auto row = met_.begin() + rank * size;
    const int64_t peers = std::count(row, row + size, true);
    host.most_peers = std::max(host.most_peers, peers);
    host.all_peers += peers;
    host.most_messages = std::max(host.most_messages, At(rank).messages);
    host.copied_bytes = std::max(host.copied_bytes, At(rank).copied_bytes);
  }
  return std::move(found_);
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
  const int64_t* const counts = call.counts.data();
  std::vector<ReductionPlan> plans;
  if (call.reduces) plans = PlanReductions(hosts, counts, ElementsOf(call.dtype, call.op));
  CallCosts costs(hosts, call);
  if (!call.reduces) {
    costs.AddGather(GatherSchedule(hosts, counts, SizeOf(call.dtype)));
  } else if (plans.empty()) {
    costs.AddSlices();
  } else {
    costs.AddPlans(plans);
  }
  *prediction = costs.Found();
  for (int host = 0; host < hosts.hosts(); ++host) {
    prediction->memory.push_back(MemoryOf(hosts, host));
    if (call.reduces) AddReduction(hosts, call, plans, host, &prediction->memory.back());
  }
  return Ok();
}

}  // namespace collops::ucx
