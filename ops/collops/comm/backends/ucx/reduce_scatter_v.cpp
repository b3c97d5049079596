// ReduceScatterV, in rank order. Every rank of another host sends its slice or, where that moves
// fewer bytes, the hosts pass on running sums. Either goes chunk by chunk.

#include <algorithm>
#include <deque>
#include <new>
#include <utility>

#include "collops/comm/backends/ucx/communicator.h"
#include "collops/comm/fused_call.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::ucx {
namespace {

// The slices of a host's ranks that another rank of the host reduces. Each rank copies its own,
// chunk by chunk, into its window of a fused call of the host, and its peers read them there. Lives
// during one call; one thread; waits for no one.
class HostSlices {
 public:
  // `plans`: by owner. `chunk`: elements of a chunk.
  HostSlices(const HostMap& hosts, const std::vector<ReductionPlan>& plans,
             const ReduceScatterVCall& call, int64_t chunk);

  // The size of the window, equal on every rank of the host; 0: no slice is read by another rank.
  int64_t window_bytes() const { return window_bytes_; }

  // The host's fused call has begun.
  void Begin(FusedCall* call) { call_ = call; }
  bool CanStage() const;
  // Copies the next chunk of this rank.
  void Stage();
  bool staged() const { return next_ == Own().positions; }

  // The address of a chunk of a slice of another rank of this host; null: it is not there yet.
  Status Find(int rank, int owner, int64_t chunk, const std::byte** data) const;

 private:
  // The slices that one rank shares. They are staged in rounds: chunk 0 of all, chunk 1 of all.
  struct Shared {
    std::vector<int> owners;
    std::vector<int64_t> offsets;  // of each slice in the window, in bytes
    int64_t positions = 0;         // of chunks; those past a slice's end are empty
  };
  const Shared& Own() const { return shared_[static_cast<size_t>(hosts_.own_index())]; }

  const HostMap& hosts_;
  const ReduceScatterVCall& slices_;
  const int64_t item_;
  const int64_t chunk_;
  std::vector<Shared> shared_;  // by local index
  int64_t window_bytes_ = 0;
  FusedCall* call_ = nullptr;
  int64_t next_ = 0;
};

// The one signal of each rank: how many chunks it has staged.
constexpr int kStaged = 0;

HostSlices::HostSlices(const HostMap& hosts, const std::vector<ReductionPlan>& plans,
                       const ReduceScatterVCall& call, int64_t chunk)
    : hosts_(hosts), slices_(call), item_(SizeOf(call.dtype)), chunk_(chunk) {
  for (const int rank : hosts.own_ranks()) {
    Shared shared;
    int64_t bytes = 0;
    int64_t rounds = 0;
    for (size_t owner = 0; owner < plans.size(); ++owner) {
      const int64_t count = call.send_counts[owner];
      if (count == 0 || !IsShared(plans[owner], rank)) continue;
      shared.owners.push_back(static_cast<int>(owner));
      shared.offsets.push_back(bytes);
      bytes += count * item_;
      rounds = std::max(rounds, (count + chunk - 1) / chunk);
    }
    shared.positions = rounds * static_cast<int64_t>(shared.owners.size());
    shared_.push_back(std::move(shared));
    window_bytes_ = std::max(window_bytes_, bytes);
  }
}

bool HostSlices::CanStage() const {
  return call_ != nullptr && !staged() && call_->WindowIsFree();
}

void HostSlices::Stage() {
  const Shared& own = Own();
  const auto number = static_cast<int64_t>(own.owners.size());
  const auto slice = static_cast<size_t>(next_ % number);
  const auto owner = static_cast<size_t>(own.owners[slice]);
  const int64_t begin = std::min(next_ / number * chunk_, slices_.send_counts[owner]);
  const int64_t count = std::min(chunk_, slices_.send_counts[owner] - begin);
  if (count > 0) {
    const auto* const x = static_cast<const std::byte*>(slices_.x);
    kernels::Copy(call_->window() + own.offsets[slice] + begin * item_,
                  x + (slices_.sdispls[owner] + begin) * item_, count * item_);
  }
  call_->Signal(kStaged, ++next_);
}

Status HostSlices::Find(int rank, int owner, int64_t chunk, const std::byte** data) const {
  *data = nullptr;
  const int index = hosts_.LocalIndex(rank);
  const Shared& shared = shared_[static_cast<size_t>(index)];
  const auto slice =
      std::lower_bound(shared.owners.begin(), shared.owners.end(), owner) - shared.owners.begin();
  const int64_t position = chunk * static_cast<int64_t>(shared.owners.size()) + slice;
  if (!call_->HasAnnounced(index) || call_->Signalled(index, kStaged) <= position) {
    return Ok();
  }
  const std::byte* window = nullptr;
  COLLOPS_RETURN_IF_ERROR(call_->PeerWindow(index, &window));
  *data = window + shared.offsets[static_cast<size_t>(slice)] + chunk * chunk_ * item_;
  return Ok();
}

// The elements of a call's chunks.
struct ReductionChunks {
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 0;         // of the group, for the average
  int64_t item = 0;      // bytes of an element
  int64_t sum_item = 0;  // of its accumulator
  int64_t chunk = 0;     // elements of a chunk
};

// Where a task takes the chunks of one source from.
struct TaskInput {
  const std::byte* data = nullptr;     // the whole slice, or
  int rank = -1;                       // the slice of this rank of the host, or
  IncomingChunks* incoming = nullptr;  // what comes over UCX
  const std::byte* ring = nullptr;     // into this ring,
  bool sums = false;                   // as accumulators
};

// One stage of a reduction that this rank makes, chunk by chunk. Lives during one call; one thread;
// waits for no one.
class ReductionTask {
 public:
  // `count`: elements of the owner's slice. `sums`: room for a chunk of accumulators.
  ReductionTask(const ReductionChunks& chunks, StageResult result, int owner, int64_t count,
                float* sums)
      : chunks_(chunks), result_(result), owner_(owner), count_(count), sums_(sums) {}

  void AddInput(const TaskInput& input) { inputs_.push_back(input); }
  // The result goes into `memory`, the whole of it or, with `outgoing`, into a ring.
  void SetOutput(std::byte* memory, OutgoingChunks* outgoing) {
    output_ = memory;
    outgoing_ = outgoing;
  }

  bool done() const { return next_ * chunks_.chunk >= count_; }
  // Whether the next chunk of all sources is there, and room for the result.
  Status Look(const HostSlices& slices, bool* ready);
  // Reduces the next chunk, which Look() has found.
  void Reduce();

 private:
  int64_t ResultItem() const {
    return result_ == StageResult::kSums ? chunks_.sum_item : chunks_.item;
  }
  void ReduceInFloat32(std::byte* to, int64_t count);
  void ReduceElements(std::byte* to, int64_t count);

  const ReductionChunks& chunks_;
  StageResult result_;
  int owner_;
  int64_t count_;
  float* sums_;
  std::vector<TaskInput> inputs_;
  std::vector<const void*> found_;  // the next chunk of each input
  std::byte* output_ = nullptr;
  OutgoingChunks* outgoing_ = nullptr;
  int64_t next_ = 0;
};

Status ReductionTask::Look(const HostSlices& slices, bool* ready) {
  *ready = false;
  if (done() || (outgoing_ != nullptr && next_ >= outgoing_->sent() + kStreamSlots)) return Ok();
  found_.clear();
  for (const TaskInput& input : inputs_) {
    const int64_t bytes = chunks_.chunk * (input.sums ? chunks_.sum_item : chunks_.item);
    const std::byte* data = nullptr;
    if (input.data != nullptr) {
      data = input.data + next_ * bytes;
    } else if (input.incoming == nullptr) {
      COLLOPS_RETURN_IF_ERROR(slices.Find(input.rank, owner_, next_, &data));
    } else if (input.incoming->arrived() > next_) {
      data = input.ring + next_ % kStreamSlots * bytes;
    }
    if (data == nullptr) return Ok();
    found_.push_back(data);
  }
  *ready = true;
  return Ok();
}

void ReductionTask::Reduce() {
  const int64_t slot = outgoing_ == nullptr ? next_ : next_ % kStreamSlots;
  std::byte* const to = output_ + slot * chunks_.chunk * ResultItem();
  const int64_t count = std::min(chunks_.chunk, count_ - next_ * chunks_.chunk);
  const bool all_elements =
      std::none_of(inputs_.begin(), inputs_.end(), [](const TaskInput& i) { return i.sums; });
  const bool in_float32 =
      chunks_.sum_item != chunks_.item && !(all_elements && result_ == StageResult::kFinished);
  in_float32 ? ReduceInFloat32(to, count) : ReduceElements(to, count);
  ++next_;
  for (const TaskInput& input : inputs_) {
    if (input.incoming != nullptr) input.incoming->Release(next_);
  }
  if (outgoing_ != nullptr) outgoing_->Offer(next_);
}

// Numbers of 16 bits, of which the accumulators cross.
void ReductionTask::ReduceInFloat32(std::byte* to, int64_t count) {
  const bool goes_on = inputs_.front().sums;
  const auto* const before = goes_on ? static_cast<const float*>(found_.front()) : nullptr;
  const void* const* const sources = found_.data() + (goes_on ? 1 : 0);
  const int number = static_cast<int>(found_.size()) - (goes_on ? 1 : 0);
  const bool finished = result_ == StageResult::kFinished;
  float* const sums = finished ? sums_ : reinterpret_cast<float*>(to);
  kernels::RunningSum(sums, before, sources, number, count, chunks_.dtype, chunks_.op);
  if (!finished) return;
  const bool average = chunks_.op == ReduceOp::kAvg;
  kernels::StoreSum(chunks_.dtype, &sums, 1, count, nullptr, 1, count, to, count,
                    average ? static_cast<float>(chunks_.ranks) : 1.0F);
}

// Numbers that are their own accumulators, or of which all slices are here. The owner divides.
void ReductionTask::ReduceElements(std::byte* to, int64_t count) {
  const bool average = chunks_.op == ReduceOp::kAvg;
  const bool finished = result_ == StageResult::kFinished;
  kernels::Reduce(to, found_.data(), static_cast<int>(found_.size()), count, chunks_.dtype,
                  average && !finished ? ReduceOp::kSum : chunks_.op,
                  outgoing_ == nullptr ? count_ * chunks_.item : 0, chunks_.ranks);
}

// A wait for the chunks of a rank of this host, which do not come over UCX.
constexpr double kHostNapS = 0.001;

// A number by which the two ends of a stream know it; it fits into a tag.
static_assert(control::kMaxGroupRanks * kMostChainStages <= 1 << 16);
int StreamNumber(int owner, const ReductionStage& stage) {
  return owner * kMostChainStages + stage.number;
}

class Reduction : public CrossHostCall {
 public:
  // `plans`: by owner; none: every slice crosses as it is.
  Reduction(Link* link, KnownPlans::Plans plans, const ReduceScatterVCall& call, Scratch* scratch)
      : CrossHostCall(link, *call.agreement, call.dtype),
        known_(std::move(plans)),
        plans_(*known_),
        call_(call),
        whole_(hosts_, call.send_counts, item_),
        elements_(ElementsOf(call.dtype, call.op)),
        chunks_(ChunksOf(call, hosts_.ranks(), plans_.empty() ? item_ : elements_.sum_bytes)),
        slices_(hosts_, plans_, call, chunks_.chunk),
        scratch_(scratch) {}

  Status Prepare() override {
    if (plans_.empty()) return scratch_->Reserve(whole_.ScratchBytes(rank_));
    if (SharesSlices()) {
      COLLOPS_RETURN_IF_ERROR(link_->host->ReserveTiles(slices_.window_bytes()));
    }
    return scratch_->Reserve(ReductionScratchBytes(plans_, call_.send_counts, elements_, rank_));
  }

  void Attach() override {
    if (!plans_.empty()) return;
    for (const int to : hosts_.Targets()) {
      const Piece sent = whole_.OwnPiece(rank_, to);
      if (sent.with_head) link_->heads->Attach(to, OwnSlice(to), sent.count * item_);
    }
  }

  Status Run() override {
    if (plans_.empty()) {
      COLLOPS_RETURN_IF_ERROR(TakeWholeSlices());
      return Move(nullptr);
    }
    MakeTasks();
    if (!SharesSlices()) return Move(nullptr);
    const std::vector<int> self = {hosts_.own_index()};
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
  static ReductionChunks ChunksOf(const ReduceScatterVCall& call, int ranks, int64_t sum_item) {
    ReductionChunks chunks;
    chunks.dtype = call.dtype;
    chunks.op = call.op;
    chunks.ranks = ranks;
    chunks.item = SizeOf(call.dtype);
    chunks.sum_item = sum_item;
    chunks.chunk = kStreamChunkBytes / sum_item;
    return chunks;
  }

  bool SharesSlices() const { return link_->host != nullptr && slices_.window_bytes() > 0; }
  std::byte* Output() const { return static_cast<std::byte*>(call_.output); }
  const std::byte* OwnSlice(int owner) const {
    return static_cast<const std::byte*>(call_.x) + call_.sdispls[owner] * item_;
  }

  // One task, which takes the slices of all ranks, in their order.
  Status TakeWholeSlices() {
    const int64_t bytes = call_.send_counts[rank_] * item_;
    std::vector<TaskInput> inputs(static_cast<size_t>(hosts_.ranks()));
    std::byte* ring = scratch_->data() + whole_.HostBytes(rank_);
    for (const int host : hosts_.OtherHosts()) {
      for (const int r : hosts_.RanksOf(host)) {
        TaskInput& input = inputs[static_cast<size_t>(r)];
        if (whole_.OwnPiece(r, rank_).with_head) {
          input.data = ring;
          COLLOPS_RETURN_IF_ERROR(link_->heads->CopyTo(ring, r, bytes));
        } else {
          input.ring = ring;
          input.incoming = streams_.Receive(r, 0, ring, bytes, kStreamSlots);
        }
        ring += whole_.RingBytes(rank_);
        const Piece sent = whole_.OwnPiece(rank_, r);
        if (!sent.with_head) streams_.Send(r, sent.number, OwnSlice(r), sent.count * item_);
      }
    }
    COLLOPS_RETURN_IF_ERROR(ReadHost(&inputs));
    ReductionTask& task = tasks_.emplace_back(chunks_, StageResult::kFinished, rank_,
                                              call_.send_counts[rank_], nullptr);
    for (const TaskInput& input : inputs) task.AddInput(input);
    task.SetOutput(Output(), nullptr);
    return Ok();
  }

  // The slices of the ranks of this host: this rank's own lies in x, the others' are copied.
  Status ReadHost(std::vector<TaskInput>* inputs) {
    (*inputs)[static_cast<size_t>(rank_)].data = OwnSlice(rank_);
    if (link_->host == nullptr) return Ok();
    std::vector<int64_t> sends, sdispls, receives, rdispls;
    for (const int r : hosts_.own_ranks()) {
      const bool own = r == rank_;
      sends.push_back(own ? 0 : call_.send_counts[r]);
      sdispls.push_back(call_.sdispls[r]);
      receives.push_back(own ? 0 : call_.send_counts[rank_]);
      rdispls.push_back(hosts_.LocalIndex(r) * call_.send_counts[rank_]);
      if (!own) (*inputs)[static_cast<size_t>(r)].data = scratch_->data() + rdispls.back() * item_;
    }
    ExchangeVCall call;
    call.dtype = call_.dtype;
    call.x = call_.x;
    call.send_counts = sends.data();
    call.sdispls = sdispls.data();
    call.output = scratch_->data();
    call.recv_counts = receives.data();
    call.rdispls = rdispls.data();
    return RunOnHost(call, &Communicator::ExchangeV);
  }

  // Rings of chunks lie one after the other in the scratch memory, behind the sums of a chunk.
  std::byte* NextRing(int64_t count) {
    std::byte* const ring = scratch_->data() + used_bytes_;
    used_bytes_ += RingBytes(count, elements_);
    return ring;
  }

  void MakeTasks() {
    float* const sums = reinterpret_cast<float*>(scratch_->data());
    used_bytes_ = kStreamChunkBytes;
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
    const int64_t chunk_bytes = chunks_.chunk * ItemBytes(stage.result, elements_);
    const int64_t bytes = count * ItemBytes(stage.result, elements_);
    const bool last = stage.consumer < 0;
    const int to = last ? -1 : stages[static_cast<size_t>(stage.consumer)].worker;
    if (stage.result == StageResult::kSlice) {
      streams_.Send(to, StreamNumber(owner, stage), OwnSlice(owner), bytes, chunk_bytes);
      return;
    }
    if (last && stage.sources.size() == 1) {
      // The finished result of another host.
      const ReductionStage& before = stages[static_cast<size_t>(stage.sources.front().index)];
      streams_.Receive(before.worker, StreamNumber(owner, before), Output(), bytes, 0, chunk_bytes);
      return;
    }
    ReductionTask& task = tasks_.emplace_back(chunks_, stage.result, owner, count, sums);
    for (const StageSource& source : stage.sources) {
      task.AddInput(MakeInput(owner, source));
    }
    if (last) return task.SetOutput(Output(), nullptr);
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
    const int64_t item = ItemBytes(before.result, elements_);
    std::byte* const ring = NextRing(call_.send_counts[owner]);
    input.ring = ring;
    input.sums = before.result == StageResult::kSums && chunks_.sum_item != chunks_.item;
    input.incoming =
        streams_.Receive(before.worker, StreamNumber(owner, before), ring,
                         call_.send_counts[owner] * item, kStreamSlots, chunks_.chunk * item);
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
    const int64_t bytes = call_.send_counts[rank_] * item_;
    kernels::Zero(Output() + bytes, call_.output_count * item_ - bytes);
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

  const KnownPlans::Plans known_;
  const std::vector<ReductionPlan>& plans_;
  const ReduceScatterVCall& call_;
  const SliceSchedule whole_;  // without plans
  const ReductionElements elements_;
  const ReductionChunks chunks_;
  HostSlices slices_;
  Scratch* scratch_;
  int64_t used_bytes_ = 0;  // of the scratch memory, by plans
  std::deque<ReductionTask> tasks_;
};

constexpr std::align_val_t kScratchAlignment{4096};

}  // namespace

Status Scratch::Reserve(int64_t bytes) {
  if (bytes <= bytes_) return Ok();
  Free();
  void* const data = ::operator new(static_cast<size_t>(bytes), kScratchAlignment, std::nothrow);
  COLLOPS_CHECK_ARG(data != nullptr, ERROR_OUT_OF_HOST_MEMORY, "this process cannot allocate ",
                    bytes, " bytes of memory for the slices of other ranks");
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return Ok();
}

void Scratch::Trim() {
  if (bytes_ > kMostKeptBytes) Free();
}

void Scratch::Free() {
  ::operator delete(data_, kScratchAlignment);
  data_ = nullptr;
  bytes_ = 0;
}

std::unique_ptr<CrossHostCall> MakeReduceScatterV(Link* link, const ReduceScatterVCall& call,
                                                  KnownPlans* plans, Scratch* scratch) {
  return std::make_unique<Reduction>(
      link, plans->For(link->hosts, call.send_counts, ElementsOf(call.dtype, call.op)), call,
      scratch);
}

}  // namespace collops::ucx
