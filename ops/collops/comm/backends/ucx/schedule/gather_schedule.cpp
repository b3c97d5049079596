#include "collops/comm/backends/ucx/schedule/gather_schedule.h"

#include <algorithm>

namespace collops::ucx {
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

Transfer GatherSchedule::Of(int owner, int from, int to) const {
  Transfer transfer;
  transfer.from = from;
  transfer.to = to;
  transfer.number = hosts_.LocalIndex(owner);
  transfer.owner = owner;
  transfer.begin = PieceBegin(owner, hosts_.HostOf(to), hosts_.LocalIndex(to));
  transfer.count = PieceCount(owner, hosts_.HostOf(to), hosts_.LocalIndex(to));
  transfer.with_head = owner == from && TravelWithHead(hosts_, from, to, transfer.count * item_);
  return transfer;
}

std::vector<Transfer> GatherSchedule::SendsTo(int rank, int host) const {
  std::vector<Transfer> transfers;
  for (const int to : hosts_.RanksOf(host)) {
    if (!hosts_.Speaks(rank, to)) continue;
    for (const int owner : hosts_.RanksOf(hosts_.HostOf(rank))) {
      const Transfer transfer = Of(owner, rank, to);
      if (transfer.count > 0) transfers.push_back(transfer);
    }
  }
  return transfers;
}

std::vector<Transfer> GatherSchedule::ReceivesFrom(int rank, int host) const {
  std::vector<Transfer> transfers;
  const int from = hosts_.SpeakerOf(host, rank);
  for (const int owner : hosts_.RanksOf(host)) {
    const Transfer transfer = Of(owner, from, rank);
    if (transfer.count > 0) transfers.push_back(transfer);
  }
  return transfers;
}

}  // namespace collops::ucx
