#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/backends/ucx/schedule/transfer.h"

namespace collops::ucx {

// What crosses between hosts in an AllGatherV, and what the ranks of a host then share. A block
// crosses once per destination host, cut over the ranks there: piece i goes to the rank with local
// index i, from the rank with that index, modulo the number of ranks, on the owner's host. Depends
// on sizes and hosts alone: the backend and the simulation use it. A value; waits for no one.
class GatherSchedule {
 public:
  // `counts`: elements of each rank's block. Both must outlive it.
  GatherSchedule(const HostMap& hosts, const int64_t* counts, int64_t item_bytes)
      : hosts_(hosts), counts_(counts), item_(item_bytes) {}

  // The transfers of a rank to, or from, the ranks of another host; none is empty. Only after the
  // blocks of its own host are there can it send those that are not its own.
  std::vector<Transfer> SendsTo(int rank, int host) const;
  std::vector<Transfer> ReceivesFrom(int rank, int host) const;
  // The piece of a rank's own block that goes to a rank of another host.
  Transfer OwnPiece(int rank, int to) const { return Of(rank, rank, to); }

  // The first element of the piece of a block that rank `index` of a host has; index may be the
  // number of ranks there. Each rank shares its piece with its host.
  int64_t PieceBegin(int owner, int host, int index) const;
  int64_t PieceCount(int owner, int host, int index) const {
    return PieceBegin(owner, host, index + 1) - PieceBegin(owner, host, index);
  }

 private:
  Transfer Of(int owner, int from, int to) const;

  const HostMap& hosts_;
  const int64_t* counts_;
  int64_t item_;
};

}  // namespace collops::ucx
