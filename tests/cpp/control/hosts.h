// Ranks on two boards, as on two hosts: threads of one process, connected by a bridge.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "comm/control/control.h"
#include "comm/control/watcher.h"
#include "control/fake_bridge.h"
#include "toy/communicator.h"

namespace fake {

using collops::Communicator;

// Two hosts of two ranks. Their pids are invented: 1000 + rank.
class TwoHosts {
 public:
  static constexpr int kRanks = 4;
  // Long enough for a watcher to wait for the ranks of its host on a slow machine.
  static constexpr double kFlushS = 60;

  explicit TwoHosts(const Link::Faults& faults = {}) : link_(std::make_shared<Link>(faults)) {
    using collops::control::Board;
    for (int host : {0, 1}) {
      const int64_t bytes = Board::Bytes(kRanks);
      EXPECT_EQ(collops::control::Segment::Create(bytes, &boards_[host]).message(), "");
      bells_[host] = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    }
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(pipe(lives_[rank]), 0);
  }
  ~TwoHosts() {
    for (int rank = 0; rank < kRanks; ++rank) EndProcess(rank);
    for (auto& life : lives_) close(life[0]);
  }

  static int HostOf(int rank) { return rank / 2; }
  Link& link() { return *link_; }

  // Acts as if the rank's process had ended: its lifeline becomes readable.
  void EndProcess(int rank) {
    if (lives_[rank][1] >= 0) close(std::exchange(lives_[rank][1], -1));
  }

  // The communicator of one rank. The lower rank of each host runs its watcher.
  std::shared_ptr<Communicator> Make(int rank, double timeout_s) {
    collops::CommunicatorSpec spec;
    spec.backend = "toy";
    spec.comm_domain = "two hosts";
    spec.rank = rank;
    spec.rank_size = kRanks;
    spec.timeout_s = timeout_s;
    spec.comm_mode = collops::COMM_MULTI_THREAD;
    collops::control::Group group = GroupOf(rank);
    const int host = HostOf(rank);
    if (rank % 2 == 0) {
      group.watcher = std::make_shared<collops::control::Watcher>(
          GroupOf(rank), kRanks, std::make_unique<Bridge>(link_, host), kFlushS);
    }
    return std::make_shared<toy::ToyCommunicator>(
        std::make_shared<collops::control::Control>(spec, std::move(group)));
  }

 private:
  collops::control::Group GroupOf(int rank) const {
    collops::control::Group group;
    group.host = HostOf(rank);
    group.segment = boards_[group.host];
    group.bell = UniqueFd(dup(bells_[group.host].get()));
    for (int r = 0; r < kRanks; ++r) {
      group.peers.emplace_back();
      group.peers.back().pid = 1000 + r;
      group.peers.back().host = HostOf(r);
      if (HostOf(r) == group.host) group.peers.back().lifeline = UniqueFd(dup(lives_[r][0]));
    }
    return group;
  }

  std::shared_ptr<Link> link_;
  collops::control::Segment boards_[2];
  UniqueFd bells_[2];
  int lives_[kRanks][2];
};

// Runs `body` for every rank in a thread of its own.
inline void OnTwoHosts(TwoHosts& hosts, double timeout_s,
                       const std::function<void(int, Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < TwoHosts::kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = hosts.Make(rank, timeout_s);
      body(rank, *comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace fake
