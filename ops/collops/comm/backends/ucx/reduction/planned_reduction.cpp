#include "collops/comm/backends/ucx/reduction/planned_reduction.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/ucx/reduction/reduction_task.h"
#include "collops/kernels/copy/copy.h"

namespace collops::ucx {
namespace {

// A wait for the chunks of a rank of this host, which do not come over UCX.
constexpr double kHostNapS = 0.001;

// A number by which the two ends of a stream know it; it fits into a tag.
static_assert(control::kMaxGroupRanks * kMostChainStages <= 1 << 16);
int StreamNumber(int owner, const ReductionStage& stage) {
  return owner * kMostChainStages + stage.number;
}

class PlannedReduction : public SliceReduction {
 public:
  PlannedReduction(Link* link, std::vector<ReductionPlan> plans, const ReduceScatterVCall& call,
                   Scratch* scratch)
      : link_(link),
        plans_(std::move(plans)),
        call_(call),
        rank_(link->control->spec().rank),
        chunks_(ChunksOf(call, link->hosts.ranks())),
        slices_(link->hosts, plans_, call, chunks_.chunk),
        scratch_(scratch),
        streams_(call.agreement->called(), link->worker.get(), &link->control->step(), rank_,
                 link->control->timeout_s()) {}

  Status Prepare() override {
    if (SharesSlices()) {
      auto& host = static_cast<shm::ShmCommunicator&>(*link_->host);  // ConnectLink() made it
      COLLOPS_RETURN_IF_ERROR(host.ReserveTiles(slices_.window_bytes()));
    }
    return scratch_->Reserve(ReductionScratchBytes(plans_, call_.send_counts, Elements(), rank_));
  }

  Status Run() override {
    MakeTasks();
    if (!SharesSlices()) return Move(nullptr);
    const std::vector<int> self = {link_->hosts.own_index()};
    const std::vector<int64_t> no_rows = {0};
    // The ranks have agreed on all of the call.
    Agreement agreement = call_.agreement->WithoutTerms();
    agreement.EqualInGroup("rows", self, 0, no_rows);
    FusedCallSpec spec;
    spec.agreement = &agreement;
    spec.dtype = call_.dtype;
    spec.readers = &self;
    spec.reader_rows = &no_rows;
    spec.tile_bytes = slices_.window_bytes();
    return link_->host->RunFused(spec, [&](FusedCall* host) { return Move(host); });
  }

 private:
  static ReductionChunks ChunksOf(const ReduceScatterVCall& call, int ranks) {
    const ReductionElements elements = ElementsOf(call.dtype, call.op);
    ReductionChunks chunks;
    chunks.dtype = call.dtype;
    chunks.op = call.op;
    chunks.ranks = ranks;
    chunks.item = elements.bytes;
    chunks.sum_item = elements.sum_bytes;
    chunks.chunk = Streams::kChunkBytes / elements.sum_bytes;
    return chunks;
  }

  bool SharesSlices() const { return link_->host != nullptr && slices_.window_bytes() > 0; }

  int64_t ItemOf(StageResult result) const {
    return result == StageResult::kSums ? chunks_.sum_item : chunks_.item;
  }
  const std::byte* OwnSlice(int owner) const {
    return static_cast<const std::byte*>(call_.x) + call_.sdispls[owner] * chunks_.item;
  }

  ReductionElements Elements() const { return ElementsOf(call_.dtype, call_.op); }

  // Rings of chunks lie one after the other in the scratch memory, behind the sums of a chunk.
  std::byte* NextRing(int64_t count) {
    std::byte* const ring = scratch_->data() + used_bytes_;
    used_bytes_ += RingBytes(count, Elements());
    return ring;
  }

  void MakeTasks() {
    float* const sums = reinterpret_cast<float*>(scratch_->data());
    used_bytes_ = Streams::kChunkBytes;
    for (size_t i = 0; i < plans_.size(); ++i) {
      const int owner = static_cast<int>(i);
      if (call_.send_counts[owner] == 0) continue;
      for (const ReductionStage& stage : plans_[i].stages) {
        if (stage.worker == rank_) MakeTask(owner, stage, sums);
      }
    }
  }

  void MakeTask(int owner, const ReductionStage& stage, float* sums) {
    const std::vector<ReductionStage>& stages = plans_[static_cast<size_t>(owner)].stages;
    const int64_t count = call_.send_counts[owner];
    const int64_t chunk_bytes = chunks_.chunk * ItemOf(stage.result);
    const int64_t bytes = count * ItemOf(stage.result);
    const bool last = stage.consumer < 0;
    const int to = last ? -1 : stages[static_cast<size_t>(stage.consumer)].worker;
    if (stage.result == StageResult::kSlice) {
      streams_.Send(to, StreamNumber(owner, stage), OwnSlice(owner), bytes, chunk_bytes);
      return;
    }
    auto* const output = static_cast<std::byte*>(call_.output);
    if (last && stage.sources.size() == 1) {
      // The finished result of another host.
      const ReductionStage& before = stages[static_cast<size_t>(stage.sources.front().index)];
      streams_.Receive(before.worker, StreamNumber(owner, before), output, bytes, 0, chunk_bytes);
      return;
    }
    ReductionTask& task = tasks_.emplace_back(chunks_, stage.result, owner, count, sums);
    for (const StageSource& source : stage.sources) {
      task.AddInput(MakeInput(owner, source));
    }
    if (last) return task.SetOutput(output, nullptr);
    std::byte* const ring = NextRing(count);
    task.SetOutput(ring,
                   streams_.SendRing(to, StreamNumber(owner, stage), ring, bytes, chunk_bytes));
  }

  TaskInput MakeInput(int owner, const StageSource& source) {
    TaskInput input;
    if (source.is_slice) {
      input.rank = source.index;
      if (source.index == rank_) input.data = OwnSlice(owner);
      return input;
    }
    const ReductionStage& before =
        plans_[static_cast<size_t>(owner)].stages[static_cast<size_t>(source.index)];
    const int64_t item = ItemOf(before.result);
    std::byte* const ring = NextRing(call_.send_counts[owner]);
    input.ring = ring;
    input.sums = before.result == StageResult::kSums && chunks_.sum_item != chunks_.item;
    input.incoming =
        streams_.Receive(before.worker, StreamNumber(owner, before), ring,
                         call_.send_counts[owner] * item, Streams::kSlots, chunks_.chunk * item);
    return input;
  }

  // Moves all chunks. `host`: the fused call of this host's ranks, if they share slices.
  Status Move(FusedCall* host) {
    if (host != nullptr) {
      slices_.Begin(host);
      streams_.set_nap_s(kHostNapS);
    }
    const auto tasks_done = [&] {
      return std::all_of(tasks_.begin(), tasks_.end(), [](const auto& t) { return t.done(); });
    };
    while (!tasks_done() || !slices_.staged()) {
      Status status;
      std::vector<ReductionTask*> ready;
      COLLOPS_RETURN_IF_ERROR(streams_.Until([&] {
        status = Look(host, &ready);
        return !status.ok() || !ready.empty() || slices_.CanStage();
      }));
      COLLOPS_RETURN_IF_ERROR(status);
      if (slices_.CanStage()) slices_.Stage();
      for (ReductionTask* task : ready) task->Reduce();
    }
    COLLOPS_RETURN_IF_ERROR(streams_.Finish());
    const int64_t bytes = call_.send_counts[rank_] * chunks_.item;
    kernels::Zero(static_cast<std::byte*>(call_.output) + bytes,
                  call_.output_count * chunks_.item - bytes);
    return Ok();
  }

  Status Look(FusedCall* host, std::vector<ReductionTask*>* ready) {
    ready->clear();
    if (host != nullptr) COLLOPS_RETURN_IF_ERROR(host->Progress());
    for (ReductionTask& task : tasks_) {
      bool can_reduce = false;
      COLLOPS_RETURN_IF_ERROR(task.Look(slices_, &can_reduce));
      if (can_reduce) ready->push_back(&task);
    }
    return Ok();
  }

  Link* link_;
  const std::vector<ReductionPlan> plans_;
  const ReduceScatterVCall& call_;
  const int rank_;
  const ReductionChunks chunks_;
  HostSlices slices_;
  Scratch* scratch_;
  int64_t used_bytes_ = 0;  // of the scratch memory
  std::deque<ReductionTask> tasks_;
  Streams streams_;
};

}  // namespace

std::unique_ptr<SliceReduction> ReduceByPlans(Link* link, std::vector<ReductionPlan> plans,
                                              const ReduceScatterVCall& call, Scratch* scratch) {
  return std::make_unique<PlannedReduction>(link, std::move(plans), call, scratch);
}

}  // namespace collops::ucx
