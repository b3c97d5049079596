// Ranks on several boards, as on several hosts: threads of one process, connected by a wire.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/hosts/watcher.h"
#include "control/fake_carrier.h"
#include "control/first_contact/tcp_wire.h"
#include "toy/communicator.h"

namespace hosts {

using collops::Communicator;
using collops::control::UniqueFd;
using tcp_hosts::Wire;

// The host of each rank. A host's ranks have neighbouring numbers.
using HostOf = std::vector<int>;

// Their pids are invented: 1000 + rank.
class Hosts {
 public:
  // Long enough for a watcher to wait for the ranks of its host on a slow machine.
  static constexpr double kFlushS = 60;

  Hosts(std::shared_ptr<Wire> wire, HostOf host_of)
      : wire_(std::move(wire)), host_of_(std::move(host_of)), lives_(host_of_.size()) {
    for (int host = 0; host <= host_of_.back(); ++host) {
      const int64_t bytes = collops::control::Board::Bytes(size());
      boards_.emplace_back();
      EXPECT_EQ(collops::control::Segment::Create(bytes, &boards_.back()).message(), "");
      bells_.emplace_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    }
    for (Life& life : lives_) EXPECT_EQ(pipe(life.ends), 0);
  }
  ~Hosts() {
    for (int rank = 0; rank < size(); ++rank) EndProcess(rank);
    for (const Life& life : lives_) close(life.ends[0]);
  }

  int size() const { return static_cast<int>(host_of_.size()); }
  int HostOfRank(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  Wire& wire() { return *wire_; }
  // Ranks that are made later have carriers.
  fake::HeadPost& UseCarriers() {
    post_ = std::make_unique<fake::HeadPost>(host_of_);
    for (int rank = 0; rank < size(); ++rank) carriers_.push_back(post_->CarrierOf(rank));
    return *post_;
  }

  // Acts as if the rank's process had ended: its lifeline becomes readable.
  void EndProcess(int rank) {
    int& end = lives_[static_cast<size_t>(rank)].ends[1];
    if (end >= 0) close(std::exchange(end, -1));
  }

  // The communicator of one rank. The lowest rank of each host runs its watcher. `lobby`: where it
  // listens; null: nowhere.
  std::shared_ptr<Communicator> Make(
      int rank, double timeout_s, const std::shared_ptr<collops::control::Lobby>& lobby = nullptr) {
    collops::CommunicatorSpec spec;
    spec.backend = "toy";
    spec.comm_domain = "several hosts";
    spec.rank = rank;
    spec.rank_size = size();
    spec.timeout_s = timeout_s;
    spec.comm_mode = collops::COMM_MULTI_THREAD;
    collops::control::Group group = GroupOf(rank);
    group.lobby = lobby;
    if (rank == 0 || HostOfRank(rank - 1) != group.host) {
      group.watcher = std::make_shared<collops::control::Watcher>(
          GroupOf(rank), size(), wire_->EndOf(group.host), kFlushS);
    }
    auto control = std::make_shared<collops::control::Control>(spec, std::move(group));
    if (post_ != nullptr) control->step().set_carrier(carriers_[static_cast<size_t>(rank)].get());
    return std::make_shared<toy::ToyCommunicator>(std::move(control));
  }

 private:
  struct Life {
    int ends[2];
  };

  collops::control::Group GroupOf(int rank) const {
    collops::control::Group group;
    group.host = HostOfRank(rank);
    group.segment = boards_[static_cast<size_t>(group.host)];
    group.doorbell = UniqueFd(dup(bells_[static_cast<size_t>(group.host)].get()));
    for (int r = 0; r < size(); ++r) {
      group.peers.emplace_back();
      group.peers.back().pid = 1000 + r;
      group.peers.back().host = HostOfRank(r);
      if (HostOfRank(r) != group.host) continue;
      group.peers.back().lifeline =
          collops::control::SharedFd(UniqueFd(dup(lives_[static_cast<size_t>(r)].ends[0])));
    }
    return group;
  }

  std::shared_ptr<Wire> wire_;
  const HostOf host_of_;
  std::vector<collops::control::Segment> boards_;
  std::vector<UniqueFd> bells_;
  std::vector<Life> lives_;
  std::unique_ptr<fake::HeadPost> post_;
  std::vector<std::unique_ptr<collops::control::HeadCarrier>> carriers_;
};

// Runs `body` for every rank in a thread of its own.
inline void OnHosts(Hosts& hosts, double timeout_s,
                    const std::function<void(int, Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < hosts.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = hosts.Make(rank, timeout_s);
      body(rank, *comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hosts
