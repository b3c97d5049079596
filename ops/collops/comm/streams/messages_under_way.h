#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/rank_set.h"

namespace collops {

// How many messages of this rank are on streams, by peer. Thread-safe; waits for nothing.
class MessagesUnderWay {
 public:
  explicit MessagesUnderWay(int rank_size)
      : counts_(std::make_shared<Counts>(static_cast<size_t>(rank_size))) {}

  // The messages are under way until nobody holds what this returns.
  KeepAlive Begin(const Transfer* list, int count) const {
    std::vector<size_t> peers;
    for (int i = 0; i < count; ++i) peers.push_back(static_cast<size_t>(list[i].peer));
    for (const size_t peer : peers) ++(*counts_)[peer];
    return KeepAlive(nullptr, [counts = counts_, peers](const void*) {
      for (const size_t peer : peers) --(*counts)[peer];
    });
  }

  RankSet Peers() const {
    RankSet peers = RankSet::None(static_cast<int>(counts_->size()));
    for (size_t peer = 0; peer < counts_->size(); ++peer) {
      if ((*counts_)[peer] > 0) peers.Add(static_cast<int>(peer));
    }
    return peers;
  }

 private:
  using Counts = std::vector<std::atomic<int>>;
  const std::shared_ptr<Counts> counts_;
};

}  // namespace collops
