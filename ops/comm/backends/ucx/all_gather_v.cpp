#include <algorithm>

#include "comm/backends/ucx/collectives.h"
#include "comm/backends/ucx/streams.h"
#include "comm/user_calls.h"
#include "kernels/copy/copy.h"

namespace collops::ucx {
namespace {

// Less is not worth cutting.
constexpr int64_t kLeastPieceBytes = 64 << 10;

// How a block is cut over the ranks of a host that receives it: piece i is elements
// [begin(i), begin(i + 1)) of it. A small block goes whole to one rank, another one for each block.
class Pieces {
 public:
  Pieces(int64_t count, int64_t item, int ranks, int block)
      : count_(count),
        ranks_(ranks),
        whole_(count * item < kLeastPieceBytes * ranks),
        owner_(block % ranks) {}
  int64_t begin(int piece) const {
    return whole_ ? (piece > owner_ ? count_ : 0)
                  : count_ / ranks_ * piece + std::min<int64_t>(piece, count_ % ranks_);
  }
  int64_t count(int piece) const { return begin(piece + 1) - begin(piece); }

 private:
  int64_t count_;
  int ranks_;
  bool whole_;
  int owner_;  // of a whole block: the rank that receives it
};

class Gather {
 public:
  Gather(Link* link, const AllGatherVCall& call)
      : link_(link),
        call_(call),
        hosts_(link->hosts),
        item_(SizeOf(call.dtype)),
        output_(static_cast<std::byte*>(call.output)),
        rank_(link->control->spec().rank),
        streams_(call.agreement->called(), link->worker.get(), &link->control->step(), rank_,
                 link->control->timeout_s()) {}

  // The piece of this rank's own block for each rank that hears of the step from it.
  void Attach() {
    const auto* const x = static_cast<const std::byte*>(call_.x);
    for (const int to : hosts_.Targets()) {
      const Pieces pieces = Cut(rank_, hosts_.HostOf(to));
      const int piece = hosts_.LocalIndex(to);
      const int64_t bytes = pieces.count(piece) * item_;
      if (!link_->heads->Takes(to, bytes)) continue;
      link_->heads->Attach(to, x + pieces.begin(piece) * item_, bytes);
    }
  }

  Status Run() {
    for (int64_t i = 0; i < call_.num_gaps; ++i) {
      const Range& gap = call_.gaps[i];
      kernels::Zero(output_ + gap.begin * item_, (gap.end - gap.begin) * item_);
    }
    RETURN_IF_ERROR(ReceiveAll());
    RETURN_IF_ERROR(GatherHost());
    SendAll();
    RETURN_IF_ERROR(streams_.Finish());
    for (int r = 0; r < link_->control->spec().rank_size; ++r) {
      if (!hosts_.IsLocal(r)) RETURN_IF_ERROR(ShareBlock(r));
    }
    return Ok();
  }

 private:
  std::byte* Block(int rank, int64_t element) const {
    return output_ + (call_.rdispls[rank] + element) * item_;
  }
  Pieces Cut(int rank, int host) const {
    return Pieces(call_.recv_counts[rank], item_, static_cast<int>(hosts_.RanksOf(host).size()),
                  hosts_.LocalIndex(rank));
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

  // Piece i of a block goes to the rank with index i on the other host, from the rank here with
  // that index, modulo the number of ranks here: every rank has all blocks of its host by then.
  void SendAll() {
    const auto& own = hosts_.own_ranks();
    for (const int host : hosts_.OtherHosts()) {
      const auto& there = hosts_.RanksOf(host);
      for (size_t i = 0; i < there.size(); ++i) {
        if (i % own.size() != static_cast<size_t>(hosts_.own_index())) continue;
        for (const int rank : own) {
          const Pieces pieces = Cut(rank, host);
          const int piece = static_cast<int>(i);
          // It came with the head.
          if (rank == rank_ && link_->heads->Takes(there[i], pieces.count(piece) * item_)) continue;
          streams_.Send(there[i], hosts_.LocalIndex(rank), Block(rank, pieces.begin(piece)),
                        pieces.count(piece) * item_);
        }
      }
    }
  }

  Status ReceiveAll() {
    const int index = hosts_.own_index();
    for (const int host : hosts_.OtherHosts()) {
      const auto& there = hosts_.RanksOf(host);
      const int from = there[static_cast<size_t>(index) % there.size()];
      for (const int rank : there) {
        const Pieces pieces = Cut(rank, hosts_.own_host());
        const int64_t bytes = pieces.count(index) * item_;
        std::byte* const block = Block(rank, pieces.begin(index));
        if (rank == from && link_->heads->Brings(from, bytes)) {
          RETURN_IF_ERROR(link_->heads->CopyTo(block, from, bytes));
        } else {
          streams_.Receive(from, hosts_.LocalIndex(rank), block, bytes);
        }
      }
    }
    return Ok();
  }

  // The ranks of this host have a piece each of the block of `rank`, and get the others.
  Status ShareBlock(int rank) {
    if (link_->host == nullptr || call_.recv_counts[rank] == 0) return Ok();
    const Pieces pieces = Cut(rank, hosts_.own_host());
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    for (int i = 0; i < link_->host->size(); ++i) {
      counts.push_back(pieces.count(i));
      displs.push_back(call_.rdispls[rank] + pieces.begin(i));
    }
    return GatherOnHost(Block(rank, pieces.begin(hosts_.own_index())), counts, displs);
  }

  Link* link_;
  const AllGatherVCall& call_;
  const HostMap& hosts_;
  const int64_t item_;
  std::byte* const output_;
  const int rank_;
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
