#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collops/comm/backends/ucx/schedule/transfer.h"

namespace collops::ucx {

// What crosses between hosts in a ReduceScatterV in which every slice goes as it is: each rank of
// another host sends its slice to the owner. Depends on sizes and hosts alone: the backend and the
// simulation use it. A value; waits for no one.
class SliceSchedule {
 public:
  // `counts`: elements of the slice for each rank. Both must outlive it.
  SliceSchedule(const HostMap& hosts, const int64_t* counts, int64_t item_bytes)
      : hosts_(hosts), counts_(counts), item_(item_bytes) {}

  // The slice that a rank sends to a rank of another host; it may be empty.
  Transfer Of(int from, int to) const {
    const int64_t count = counts_[to];
    return {from, to, 0, to, 0, count, TravelWithHead(hosts_, from, to, count * item_)};
  }

  // Memory of a rank for the slices of the others: those of its host lie there whole, of each
  // other one a ring of chunks.
  int64_t ScratchBytes(int rank) const {
    const auto here = static_cast<int64_t>(hosts_.RanksOf(hosts_.HostOf(rank)).size());
    return HostBytes(rank) + (hosts_.ranks() - here) * RingBytes(rank);
  }
  int64_t HostBytes(int rank) const {
    const auto here = static_cast<int64_t>(hosts_.RanksOf(hosts_.HostOf(rank)).size());
    return here == 1 ? 0 : here * counts_[rank] * item_;
  }
  int64_t RingBytes(int rank) const {
    return std::min<int64_t>(counts_[rank] * item_, kStreamSlots * kStreamChunkBytes);
  }

 private:
  const HostMap& hosts_;
  const int64_t* counts_;
  int64_t item_;
};

}  // namespace collops::ucx
