#include "collops/comm/backends/ucx/collectives.h"
#include "collops/comm/backends/ucx/schedule/gather_schedule.h"
#include "collops/comm/backends/ucx/streams.h"
#include "collops/comm/user_calls.h"
#include "collops/kernels/copy/copy.h"

namespace collops::ucx {
namespace {

class Gather {
 public:
  Gather(Link* link, const AllGatherVCall& call)
      : link_(link),
        call_(call),
        hosts_(link->hosts),
        item_(SizeOf(call.dtype)),
        output_(static_cast<std::byte*>(call.output)),
        rank_(link->control->spec().rank),
        schedule_(hosts_, call.recv_counts, item_),
        streams_(call.agreement->called(), link->worker.get(), &link->control->step(), rank_,
                 link->control->timeout_s()) {}

  // The piece of this rank's own block for each rank that hears of the step from it.
  void Attach() {
    const auto* const x = static_cast<const std::byte*>(call_.x);
    for (const int to : hosts_.Targets()) {
      const Transfer own = schedule_.OwnPiece(rank_, to);
      if (own.with_head) link_->heads->Attach(to, x + own.begin * item_, own.count * item_);
    }
  }

  Status Run() {
    for (int64_t i = 0; i < call_.num_gaps; ++i) {
      const Range& gap = call_.gaps[i];
      kernels::Zero(output_ + gap.begin * item_, (gap.end - gap.begin) * item_);
    }
    COLLOPS_RETURN_IF_ERROR(ReceiveAll());
    COLLOPS_RETURN_IF_ERROR(GatherHost());
    SendAll();
    COLLOPS_RETURN_IF_ERROR(streams_.Finish());
    for (int r = 0; r < link_->control->spec().rank_size; ++r) {
      if (!hosts_.IsLocal(r)) COLLOPS_RETURN_IF_ERROR(ShareBlock(r));
    }
    return Ok();
  }

 private:
  std::byte* Block(int rank, int64_t element) const {
    return output_ + (call_.rdispls[rank] + element) * item_;
  }

  // Every rank of this host gets the blocks of this host.
  Status GatherHost() {
    std::byte* const own = Block(rank_, 0);
    const int64_t bytes = call_.recv_counts[rank_] * item_;
    if (link_->host == nullptr) {
      if (call_.x != own && bytes > 0) kernels::Copy(own, call_.x, bytes);
      return Ok();
    }
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    for (const int rank : hosts_.own_ranks()) {
      counts.push_back(call_.recv_counts[rank]);
      displs.push_back(call_.rdispls[rank]);
    }
    return GatherOnHost(call_.x, counts, displs);
  }

  Status GatherOnHost(const void* x, const std::vector<int64_t>& counts,
                      const std::vector<int64_t>& displs) {
    // The ranks have agreed on all of the call.
    const Agreement agreement = call_.agreement->WithoutTerms();
    AllGatherVCall call;
    call.agreement = &agreement;
    call.dtype = call_.dtype;
    call.x = x;
    call.output = output_;
    call.recv_counts = counts.data();
    call.rdispls = displs.data();
    // The group of this host counts steps of its own.
    const UserCall number(CallNumber(link_->control->step_number()));
    return link_->host->AllGatherV(call);
  }

  void SendAll() {
    for (const int host : hosts_.OtherHosts()) {
      for (const Transfer& sent : schedule_.SendsTo(rank_, host)) {
        if (sent.with_head) continue;
        streams_.Send(sent.to, sent.number, Block(sent.owner, sent.begin), sent.count * item_);
      }
    }
  }

  Status ReceiveAll() {
    for (const int host : hosts_.OtherHosts()) {
      for (const Transfer& come : schedule_.ReceivesFrom(rank_, host)) {
        std::byte* const block = Block(come.owner, come.begin);
        if (come.with_head) {
          COLLOPS_RETURN_IF_ERROR(link_->heads->CopyTo(block, come.from, come.count * item_));
        } else {
          streams_.Receive(come.from, come.number, block, come.count * item_);
        }
      }
    }
    return Ok();
  }

  // The ranks of this host have a piece each of the block of `rank`, and get the others.
  Status ShareBlock(int rank) {
    if (link_->host == nullptr || call_.recv_counts[rank] == 0) return Ok();
    const int here = hosts_.own_host();
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    for (int i = 0; i < link_->host->size(); ++i) {
      counts.push_back(schedule_.PieceCount(rank, here, i));
      displs.push_back(call_.rdispls[rank] + schedule_.PieceBegin(rank, here, i));
    }
    const int64_t own = schedule_.PieceBegin(rank, here, hosts_.own_index());
    return GatherOnHost(Block(rank, own), counts, displs);
  }

  Link* link_;
  const AllGatherVCall& call_;
  const HostMap& hosts_;
  const int64_t item_;
  std::byte* const output_;
  const int rank_;
  const GatherSchedule schedule_;
  Streams streams_;
};

}  // namespace

void AttachAllGatherV(Link* link, const AllGatherVCall& call) {
  Gather(link, call).Attach();
}

Status AllGatherV(Link* link, const AllGatherVCall& call) {
  return Gather(link, call).Run();
}

}  // namespace collops::ucx
