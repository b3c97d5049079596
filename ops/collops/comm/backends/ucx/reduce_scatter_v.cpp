#include <algorithm>
#include <new>
#include <utility>

#include "collops/comm/backends/ucx/communicator.h"
#include "collops/comm/user_calls.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::ucx {
namespace {

// Of one rank's slice: where its elements lie, chunk by chunk.
struct Source {
  const std::byte* data = nullptr;     // the whole slice, or
  IncomingChunks* incoming = nullptr;  // a ring into which it comes
  const std::byte* ring = nullptr;

  const std::byte* At(int64_t chunk) const {
    constexpr int64_t kBytes = Streams::kChunkBytes;
    return incoming == nullptr ? data + chunk * kBytes : ring + chunk % Streams::kSlots * kBytes;
  }
};

// Every slice crosses as it is.
class WholeSlices : public CrossHostCall {
 public:
  WholeSlices(Link* link, const ReduceScatterVCall& call, Scratch* scratch)
      : CrossHostCall(link, *call.agreement, call.dtype),
        call_(call),
        size_(link->control->spec().rank_size),
        bytes_(call.send_counts[rank_] * item_),
        schedule_(hosts_, call.send_counts, item_),
        scratch_(scratch) {}

  Status Prepare() override { return scratch_->Reserve(schedule_.ScratchBytes(rank_)); }

  void Attach() override {
    for (const int to : hosts_.Targets()) {
      const Piece sent = schedule_.Of(rank_, to);
      if (sent.with_head) link_->heads->Attach(to, Slice(to), sent.count * item_);
    }
  }

  Status Run() override {
    sources_.resize(static_cast<size_t>(size_));
    std::byte* const rings = scratch_->data() + schedule_.HostBytes(rank_);
    int64_t number = 0;
    for (const int host : hosts_.OtherHosts()) {
      for (const int r : hosts_.RanksOf(host)) {
        Source& source = sources_[static_cast<size_t>(r)];
        source.ring = rings + number++ * schedule_.RingBytes(rank_);
        auto* const memory = const_cast<std::byte*>(source.ring);
        if (schedule_.Of(r, rank_).with_head) {
          source.data = memory;
          COLLOPS_RETURN_IF_ERROR(link_->heads->CopyTo(memory, r, bytes_));
        } else {
          source.incoming = streams_.Receive(r, 0, memory, bytes_, Streams::kSlots);
        }
        const Piece sent = schedule_.Of(rank_, r);
        if (!sent.with_head) streams_.Send(r, sent.number, Slice(r), sent.count * item_);
      }
    }
    COLLOPS_RETURN_IF_ERROR(ReadHost(scratch_->data()));
    COLLOPS_RETURN_IF_ERROR(ReduceAll());
    COLLOPS_RETURN_IF_ERROR(streams_.Finish());
    auto* const output = static_cast<std::byte*>(call_.output);
    kernels::Zero(output + bytes_, call_.output_count * item_ - bytes_);
    return Ok();
  }

 private:
  const std::byte* Slice(int rank) const {
    return static_cast<const std::byte*>(call_.x) + call_.sdispls[rank] * item_;
  }

  // The slices of the ranks of this host: this rank's own lies in x, the others' are copied.
  Status ReadHost(std::byte* to) {
    sources_[static_cast<size_t>(rank_)].data = Slice(rank_);
    if (link_->host == nullptr) return Ok();
    std::vector<int64_t> sends, sdispls, receives, rdispls;
    for (const int r : hosts_.own_ranks()) {
      const bool own = r == rank_;
      sends.push_back(own ? 0 : call_.send_counts[r]);
      sdispls.push_back(call_.sdispls[r]);
      receives.push_back(own ? 0 : call_.send_counts[rank_]);
      rdispls.push_back(hosts_.LocalIndex(r) * call_.send_counts[rank_]);
      if (!own) sources_[static_cast<size_t>(r)].data = to + rdispls.back() * item_;
    }
    // The ranks have agreed on all of the call.
    const Agreement agreement = call_.agreement->WithoutTerms();
    ExchangeVCall call;
    call.agreement = &agreement;
    call.dtype = call_.dtype;
    call.x = call_.x;
    call.send_counts = sends.data();
    call.sdispls = sdispls.data();
    call.output = to;
    call.recv_counts = receives.data();
    call.rdispls = rdispls.data();
    // The group of this host counts steps of its own.
    const UserCall number(CallNumber(link_->control->step_number()));
    return link_->host->ExchangeV(call);
  }

  // Chunk by chunk, as the chunks of all other hosts' ranks arrive.
  Status ReduceAll() {
    std::vector<const void*> inputs(static_cast<size_t>(size_));
    auto* const output = static_cast<std::byte*>(call_.output);
    for (int64_t chunk = 0; chunk * Streams::kChunkBytes < bytes_; ++chunk) {
      COLLOPS_RETURN_IF_ERROR(streams_.Until([&] { return HasArrived(chunk); }));
      const int64_t begin = chunk * Streams::kChunkBytes;
      const int64_t bytes = std::min(Streams::kChunkBytes, bytes_ - begin);
      for (size_t r = 0; r < sources_.size(); ++r) inputs[r] = sources_[r].At(chunk);
      kernels::Reduce(output + begin, inputs.data(), size_, bytes / item_, call_.dtype, call_.op,
                      bytes_);
      for (const Source& source : sources_) {
        if (source.incoming != nullptr) source.incoming->Release(chunk + 1);
      }
    }
    return Ok();
  }

  bool HasArrived(int64_t chunk) const {
    return std::all_of(sources_.begin(), sources_.end(), [&](const Source& source) {
      return source.incoming == nullptr || source.incoming->arrived() > chunk;
    });
  }

  const ReduceScatterVCall& call_;
  const int size_;
  const int64_t bytes_;  // of this rank's slice
  const SliceSchedule schedule_;
  Scratch* scratch_;
  std::vector<Source> sources_;  // by rank
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
                                                  Scratch* scratch) {
  std::vector<ReductionPlan> plans =
      PlanReductions(link->hosts, call.send_counts, ElementsOf(call.dtype, call.op));
  if (plans.empty()) return std::make_unique<WholeSlices>(link, call, scratch);
  return MakePlannedReduction(link, std::move(plans), call, scratch);
}

}  // namespace collops::ucx
