#pragma once

#include <utility>

#include "collops/comm/pairs/pair_wire.h"
#include "collops/comm/pairs/transfer_table.h"
#include "collops/core/fence.h"
#include "collops/core/status.h"

namespace collops {

// State that inbox and outbox of a lane share. Owned by the lane; one thread at a time.
struct PairContext {
  int rank;
  int rank_size;
  PairWire* wire;
  PairGroup* group;
  TransferTable table;
  Status failure;  // not ok: the lane has ended with this error

  void Fail(Status why) {
    if (failure.ok()) failure = std::move(why);
  }
  // Whether the group has failed, after the last read of a sender's memory: a sender that has given
  // up publishes that before it writes its memory again.
  bool FailedMeanwhile() const {
    Fence(std::memory_order_acquire);
    return group->Failed();
  }
  // For what a peer wrote that no correct rank writes.
  void FailBroken(int peer, const std::string& what) {
    Fail(Error(ERROR_PEER_LOST, "Send and Recv: ", group->NameRank(peer), " sent ", what));
  }
};

}  // namespace collops
