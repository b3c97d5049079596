// AllGatherV and ExchangeV between hosts: what crosses, and what the ranks of a host then share.

#include "collops/comm/backends/ucx/communicator.h"
#include "collops/kernels/copy.h"

namespace collops::ucx {
namespace {

class Gather : public CrossHostCall {
 public:
  Gather(Link* link, const AllGatherVCall& call)
      : CrossHostCall(link, *call.agreement, call.dtype),
        call_(call),
        output_(static_cast<std::byte*>(call.output)),
        schedule_(hosts_, call.recv_counts, item_) {}

  // The piece of this rank's own block for each rank that hears of the step from it.
  void Attach() override {
    const auto* const x = static_cast<const std::byte*>(call_.x);
    for (const int to : hosts_.Targets()) {
      const Piece own = schedule_.OwnPiece(rank_, to);
      if (own.with_head) link_->heads->Attach(to, x + own.begin * item_, own.count * item_);
    }
  }

  Status Run() override {
    shm::ZeroGaps(call_);
    COLLOPS_RETURN_IF_ERROR(ReceiveAll());
    COLLOPS_RETURN_IF_ERROR(GatherHost());
    for (const int host : hosts_.OtherHosts()) {
      for (const Piece& sent : schedule_.SendsTo(rank_, host)) {
        if (sent.with_head) continue;
        streams_.Send(sent.to, sent.number, Block(sent.owner, sent.begin), sent.count * item_);
      }
    }
    COLLOPS_RETURN_IF_ERROR(streams_.Finish());
    for (int r = 0; r < hosts_.ranks(); ++r) {
      if (!hosts_.IsLocal(r)) COLLOPS_RETURN_IF_ERROR(ShareBlock(r));
    }
    return Ok();
  }

 private:
  std::byte* Block(int rank, int64_t element) const {
    return output_ + (call_.rdispls[rank] + element) * item_;
  }

  Status ReceiveAll() {
    for (const int host : hosts_.OtherHosts()) {
      for (const Piece& come : schedule_.ReceivesFrom(rank_, host)) {
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
    AllGatherVCall call;
    call.dtype = call_.dtype;
    call.x = x;
    call.output = output_;
    call.recv_counts = counts.data();
    call.rdispls = displs.data();
    return RunOnHost(call, &Communicator::AllGatherV);
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

  const AllGatherVCall& call_;
  std::byte* const output_;
  const GatherSchedule schedule_;
};

class SliceExchange : public CrossHostCall {
 public:
  SliceExchange(Link* link, const ExchangeVCall& call)
      : CrossHostCall(link, *call.agreement, call.dtype), call_(call) {}

  Status Run() override {
    shm::ZeroGaps(call_);
    for (const int host : hosts_.OtherHosts()) {
      for (const int r : hosts_.RanksOf(host)) {
        streams_.Receive(r, 0, Output(call_.rdispls[r]), call_.recv_counts[r] * item_);
        streams_.Send(r, 0, Slice(r), call_.send_counts[r] * item_);
      }
    }
    COLLOPS_RETURN_IF_ERROR(ExchangeHost());
    return streams_.Finish();
  }

 private:
  const std::byte* Slice(int rank) const {
    return static_cast<const std::byte*>(call_.x) + call_.sdispls[rank] * item_;
  }
  std::byte* Output(int64_t element) const {
    return static_cast<std::byte*>(call_.output) + element * item_;
  }

  // The slices for the ranks of this host, over shared memory.
  Status ExchangeHost() {
    if (link_->host == nullptr) {
      if (call_.recv_counts[rank_] > 0) {
        kernels::Copy(Output(call_.rdispls[rank_]), Slice(rank_), call_.recv_counts[rank_] * item_);
      }
      return Ok();
    }
    std::vector<int64_t> lists[4];
    for (const int r : hosts_.own_ranks()) {
      lists[0].push_back(call_.send_counts[r]);
      lists[1].push_back(call_.sdispls[r]);
      lists[2].push_back(call_.recv_counts[r]);
      lists[3].push_back(call_.rdispls[r]);
    }
    ExchangeVCall inner = call_;
    inner.send_counts = lists[0].data();
    inner.sdispls = lists[1].data();
    inner.recv_counts = lists[2].data();
    inner.rdispls = lists[3].data();
    inner.gaps = nullptr;
    inner.num_gaps = 0;
    return RunOnHost(inner, &Communicator::ExchangeV);
  }

  const ExchangeVCall& call_;
};

}  // namespace

std::unique_ptr<CrossHostCall> MakeAllGatherV(Link* link, const AllGatherVCall& call) {
  return std::make_unique<Gather>(link, call);
}

std::unique_ptr<CrossHostCall> MakeExchangeV(Link* link, const ExchangeVCall& call) {
  return std::make_unique<SliceExchange>(link, call);
}

}  // namespace collops::ucx
