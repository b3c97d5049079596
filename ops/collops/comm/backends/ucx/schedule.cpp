#include "collops/comm/backends/ucx/schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace collops::ucx {

HostMap::HostMap(const control::Group& group, int rank) : own_(group.host) {
  for (const control::Peer& peer : group.peers) Add(peer.host);
  own_index_ = LocalIndex(rank);
}

HostMap::HostMap(const std::vector<int>& host_of, int rank)
    : own_(host_of[static_cast<size_t>(rank)]) {
  for (const int host : host_of) Add(host);
  own_index_ = LocalIndex(rank);
}

void HostMap::Add(int host) {
  const auto index = static_cast<size_t>(host);
  ranks_.resize(std::max(ranks_.size(), index + 1));
  index_.push_back(static_cast<int>(ranks_[index].size()));
  ranks_[index].push_back(static_cast<int>(host_of_.size()));
  host_of_.push_back(host);
}

std::vector<int> HostMap::OtherHosts() const {
  std::vector<int> others;
  for (int i = 0; i + 1 < hosts(); ++i) others.push_back(OtherHost(own_, i));
  return others;
}

std::vector<int> HostMap::Sources() const {
  std::vector<int> sources;
  const int rank = own_ranks()[static_cast<size_t>(own_index_)];
  for (const int host : OtherHosts()) sources.push_back(SpeakerOf(host, rank));
  return sources;
}

std::vector<int> HostMap::Targets() const {
  std::vector<int> targets;
  const int own = own_ranks()[static_cast<size_t>(own_index_)];
  for (const int host : OtherHosts()) {
    for (const int rank : RanksOf(host)) {
      if (Speaks(own, rank)) targets.push_back(rank);
    }
  }
  return targets;
}

namespace {

// Less is not worth cutting.
constexpr int64_t kLeastPieceBytes = 64 << 10;

}  // namespace

// A small block goes whole to one rank, another one for each block.
int64_t GatherSchedule::PieceBegin(int owner, int host, int index) const {
  const int64_t count = counts_[owner];
  const auto ranks = static_cast<int>(hosts_.RanksOf(host).size());
  if (count * item_ < kLeastPieceBytes * ranks) {
    return index > hosts_.LocalIndex(owner) % ranks ? count : 0;
  }
  return count / ranks * index + std::min<int64_t>(index, count % ranks);
}

Piece GatherSchedule::Of(int owner, int from, int to) const {
  Piece transfer;
  transfer.from = from;
  transfer.to = to;
  transfer.number = hosts_.LocalIndex(owner);
  transfer.owner = owner;
  transfer.begin = PieceBegin(owner, hosts_.HostOf(to), hosts_.LocalIndex(to));
  transfer.count = PieceCount(owner, hosts_.HostOf(to), hosts_.LocalIndex(to));
  transfer.with_head = owner == from && TravelWithHead(hosts_, from, to, transfer.count * item_);
  return transfer;
}

std::vector<Piece> GatherSchedule::SendsTo(int rank, int host) const {
  std::vector<Piece> transfers;
  for (const int to : hosts_.RanksOf(host)) {
    if (!hosts_.Speaks(rank, to)) continue;
    for (const int owner : hosts_.RanksOf(hosts_.HostOf(rank))) {
      const Piece transfer = Of(owner, rank, to);
      if (transfer.count > 0) transfers.push_back(transfer);
    }
  }
  return transfers;
}

std::vector<Piece> GatherSchedule::ReceivesFrom(int rank, int host) const {
  std::vector<Piece> transfers;
  const int from = hosts_.SpeakerOf(host, rank);
  for (const int owner : hosts_.RanksOf(host)) {
    const Piece transfer = Of(owner, from, rank);
    if (transfer.count > 0) transfers.push_back(transfer);
  }
  return transfers;
}

std::vector<Piece> SliceSchedule::SendsTo(int rank, int host) const {
  std::vector<Piece> pieces;
  for (const int to : hosts_.RanksOf(host)) {
    if (counts_[to] > 0) pieces.push_back(OwnPiece(rank, to));
  }
  return pieces;
}

std::vector<Piece> SliceSchedule::ReceivesFrom(int rank, int host) const {
  std::vector<Piece> pieces;
  for (const int from : hosts_.RanksOf(host)) {
    if (counts_[rank] > 0) pieces.push_back(OwnPiece(from, rank));
  }
  return pieces;
}

namespace {

// Slices below this cross in one message each, in one trip.
constexpr int64_t kLeastSliceBytes = 64 << 10;
// Ranks share their slices in memory that they keep; more than this crosses whole.
constexpr int64_t kMostSharedBytes = int64_t{1} << 30;

class Planner {
 public:
  Planner(const HostMap& hosts, int owner, const ReductionElements& elements)
      : hosts_(hosts), owner_(owner), elements_(elements) {}

  // The plan that moves fewer bytes than Whole(), if there is one.
  std::optional<ReductionPlan> Better() const {
    const auto home = static_cast<int64_t>(hosts_.RanksOf(Home()).size());
    ReductionPlan plan = elements_.any_order ? HostsFirst() : Chain();
    const bool fits = elements_.any_order || plan.stages.size() <= kMostChainStages;
    if (!fits || plan.element_bytes >= elements_.bytes * (hosts_.ranks() - home)) return {};
    return plan;
  }

  ReductionPlan Whole() const {
    ReductionPlan plan;
    plan.whole = true;
    ReductionStage last;
    for (int rank = 0; rank < hosts_.ranks(); ++rank) {
      if (hosts_.HostOf(rank) == Home()) {
        last.sources.push_back({true, rank});
        continue;
      }
      ReductionStage stage;
      stage.worker = rank;
      stage.sources = {{true, rank}};
      last.sources.push_back({false, Add(std::move(stage), elements_.bytes, &plan)});
    }
    Close(std::move(last), &plan);
    return plan;
  }

 private:
  ReductionPlan HostsFirst() const {
    ReductionPlan plan;
    ReductionStage last;
    for (int host = 0; host < hosts_.hosts(); ++host) {
      if (host == Home()) {
        for (const StageSource& slice : Slices(host)) last.sources.push_back(slice);
        continue;
      }
      ReductionStage stage;
      stage.worker = WorkerOn(host);
      stage.sources = Slices(host);
      stage.result = stage.sources.size() == 1 ? StageResult::kSlice : StageResult::kPartial;
      last.sources.push_back({false, Add(std::move(stage), elements_.bytes, &plan)});
    }
    Close(std::move(last), &plan);
    return plan;
  }

  // It ends early if it gets too long.
  ReductionPlan Chain() const {
    ReductionPlan plan;
    ReductionStage stage;
    stage.worker = WorkerOn(hosts_.HostOf(0));
    for (int rank = 0; rank < hosts_.ranks() && plan.stages.size() <= kMostChainStages; ++rank) {
      const int worker = WorkerOn(hosts_.HostOf(rank));
      if (worker != stage.worker) {
        // The running sum crosses.
        const bool slice = rank == 1;
        stage.result = slice ? StageResult::kSlice : StageResult::kSums;
        if (slice) stage.worker = 0;
        const int64_t bytes = slice ? elements_.bytes : elements_.sum_bytes;
        const int before = Add(std::move(stage), bytes, &plan);
        stage = {};
        stage.worker = worker;
        stage.sources = {{false, before}};
      }
      stage.sources.push_back({true, rank});
    }
    if (stage.worker != owner_) {
      stage.result = StageResult::kFinished;
      const int before = Add(std::move(stage), elements_.bytes, &plan);
      stage = {};
      stage.sources = {{false, before}};
    }
    Close(std::move(stage), &plan);
    return plan;
  }

  int Home() const { return hosts_.HostOf(owner_); }
  int WorkerOn(int host) const {
    const auto& ranks = hosts_.RanksOf(host);
    return ranks[static_cast<size_t>(hosts_.LocalIndex(owner_)) % ranks.size()];
  }
  std::vector<StageSource> Slices(int host) const {
    std::vector<StageSource> slices;
    for (const int rank : hosts_.RanksOf(host)) slices.push_back({true, rank});
    return slices;
  }

  // A stage whose result crosses to another host.
  static int Add(ReductionStage stage, int64_t bytes, ReductionPlan* plan) {
    const int index = static_cast<int>(plan->stages.size());
    for (const StageSource& source : stage.sources) {
      if (!source.is_slice) plan->stages[static_cast<size_t>(source.index)].consumer = index;
    }
    stage.number = index % kMostChainStages;
    plan->stages.push_back(std::move(stage));
    plan->element_bytes += bytes;
    return index;
  }
  // The stage of the owner.
  void Close(ReductionStage stage, ReductionPlan* plan) const {
    stage.worker = owner_;
    stage.result = StageResult::kFinished;
    Add(std::move(stage), 0, plan);
  }

  const HostMap& hosts_;
  int owner_;
  const ReductionElements& elements_;
};

int64_t CountRings(const ReductionPlan& plan, int rank) {
  int64_t rings = 0;
  for (const ReductionStage& stage : plan.stages) {
    if (stage.worker != rank || stage.result == StageResult::kSlice) continue;
    rings += 1 + std::count_if(stage.sources.begin(), stage.sources.end(),
                               [](const StageSource& source) { return !source.is_slice; });
  }
  return rings;
}

}  // namespace

ReductionElements ElementsOf(DType dtype, ReduceOp op) {
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool floating = half || dtype == DType::kFloat32 || dtype == DType::kFloat64;
  const bool extreme = op == ReduceOp::kMax || op == ReduceOp::kMin;
  ReductionElements elements;
  elements.bytes = SizeOf(dtype);
  elements.sum_bytes = half && !extreme ? int64_t{sizeof(float)} : elements.bytes;
  elements.any_order = extreme || !floating;
  return elements;
}

ReductionPlan PlanReduction(const HostMap& hosts, int owner, const ReductionElements& elements) {
  const Planner planner(hosts, owner, elements);
  std::optional<ReductionPlan> better = planner.Better();
  return better ? *std::move(better) : planner.Whole();
}

std::vector<ReductionPlan> PlanReductions(const HostMap& hosts, const int64_t* counts,
                                          const ReductionElements& elements) {
  const int64_t* const end = counts + hosts.ranks();
  if (*std::max_element(counts, end) * elements.bytes < kLeastSliceBytes) return {};
  if (std::accumulate(counts, end, int64_t{0}) * elements.bytes > kMostSharedBytes) return {};
  std::vector<std::optional<ReductionPlan>> better;
  for (int owner = 0; owner < hosts.ranks(); ++owner) {
    better.push_back(Planner(hosts, owner, elements).Better());
  }
  const auto is_there = [](const auto& plan) { return plan.has_value(); };
  if (std::none_of(better.begin(), better.end(), is_there)) return {};
  std::vector<ReductionPlan> plans;
  for (int owner = 0; owner < hosts.ranks(); ++owner) {
    auto& plan = better[static_cast<size_t>(owner)];
    plans.push_back(plan ? *std::move(plan) : Planner(hosts, owner, elements).Whole());
  }
  return plans;
}

KnownPlans::Plans KnownPlans::For(const HostMap& hosts, const int64_t* counts,
                                  const ReductionElements& elements) {
  const bool known = plans_ != nullptr && elements == elements_ &&
                     std::equal(counts_.begin(), counts_.end(), counts);
  if (!known) {
    counts_.assign(counts, counts + hosts.ranks());
    elements_ = elements;
    plans_ =
        std::make_shared<const std::vector<ReductionPlan>>(PlanReductions(hosts, counts, elements));
  }
  return plans_;
}

int64_t ItemBytes(StageResult result, const ReductionElements& elements) {
  return result == StageResult::kSums ? elements.sum_bytes : elements.bytes;
}

bool IsShared(const ReductionPlan& plan, int rank) {
  return std::any_of(plan.stages.begin(), plan.stages.end(), [rank](const ReductionStage& stage) {
    return stage.worker != rank &&
           std::any_of(stage.sources.begin(), stage.sources.end(),
                       [rank](const StageSource& s) { return s.is_slice && s.index == rank; });
  });
}

int64_t RingBytes(int64_t count, const ReductionElements& elements) {
  constexpr int64_t kCacheLineBytes = 64;
  const int64_t bytes = (count * elements.sum_bytes + kCacheLineBytes - 1) & -kCacheLineBytes;
  return std::min(bytes, kStreamSlots * kStreamChunkBytes);
}

int64_t ReductionScratchBytes(const std::vector<ReductionPlan>& plans, const int64_t* counts,
                              const ReductionElements& elements, int rank) {
  int64_t bytes = kStreamChunkBytes;
  for (size_t owner = 0; owner < plans.size(); ++owner) {
    bytes += CountRings(plans[owner], rank) * RingBytes(counts[owner], elements);
  }
  return bytes;
}

}  // namespace collops::ucx
