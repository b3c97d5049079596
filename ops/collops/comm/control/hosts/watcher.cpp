#include "collops/comm/control/hosts/watcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "collops/comm/control/endpoint.h"
#include "collops/core/deadline.h"

namespace collops::control {
namespace {

std::vector<int> RanksOf(const Group& group, bool own) {
  std::vector<int> ranks;
  for (size_t r = 0; r < group.peers.size(); ++r) {
    if ((group.peers[r].host == group.host) == own) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

int NumHosts(const Group& group) {
  int hosts = 0;
  for (const Peer& peer : group.peers) hosts = std::max(hosts, peer.host + 1);
  return hosts;
}

}  // namespace

Watcher::Watcher(Group group, int rank_size, std::unique_ptr<Bridge> bridge, double flush_s)
    : group_(std::move(group)),
      bridge_(std::move(bridge)),
      board_(group_.segment.data(), rank_size),
      rank_size_(rank_size),
      num_hosts_(NumHosts(group_)),
      own_ranks_(RanksOf(group_, true)),
      doorbell_rank_(RanksOf(group_, false).front()),
      sender_(&group_, own_ranks_, rank_size),
      replica_(group_, rank_size),
      gone_(static_cast<size_t>(num_hosts_), false),
      flush_s_(flush_s) {
  // All hosts were there at first contact: a host that never sends a heartbeat is silent from now
  // on.
  for (int host = 0; host < num_hosts_; ++host) replica_.SetAlive(host);
  thread_ = std::thread([this] { Run(); });
}

Watcher::~Watcher() {
  stop_.store(true);
  RingDoorbell(group_.doorbell.get());
  thread_.join();
}

void Watcher::Run() {
  // Signals go to the user's threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::atomic<uint32_t>& asleep = board_.member(doorbell_rank_).asleep[kGroupLane];
  asleep.store(kInItsLane,
               std::memory_order_seq_cst);  // awake also while it works, so that no ring is missed
  while (!stop_.load()) {
    Turn();
    SendHeartbeat();
    Sleep();
  }
  Farewell();
  asleep.store(kAwake, std::memory_order_relaxed);
}

void Watcher::Farewell() {
  const Deadline deadline = Deadline::After(flush_s_);
  while (!deadline.Passed()) {
    const bool silent = HasNothingToSend();
    if (Turn() && silent) return;
    Sleep();
  }
}

// Whether the ranks of this host have nothing more to send. After one rank has ended, the others
// finish the step that it has ended, no later one, and none after a failure.
bool Watcher::HasNothingToSend() const {
  uint64_t last = 0;
  for (const int rank : own_ranks_) last = std::max(last, board_.member(rank).finished.load());
  return std::all_of(own_ranks_.begin(), own_ranks_.end(), [&](int rank) {
    const Member& member = board_.member(rank);
    const uint64_t finished = member.finished.load();
    return member.left.load() != 0 || finished == last || replica_.GroupFailed(finished + 1) ||
           sender_.HasEnded(rank);
  });
}

bool Watcher::Turn() {
  TakeAll();
  sender_.Look(rung_ || stop_.load());
  rung_ = false;
  bool all = true;
  for (int host = 0; host < num_hosts_; ++host) {
    if (host == group_.host || IsGone(host)) continue;
    if (bridge_->Lost(host)) {
      Drop(host);
    } else {
      all = sender_.SendTo(host, bridge_.get()) && all;
    }
  }
  return all;
}

void Watcher::TakeAll() {
  int host = -1;
  Frame frame;
  StatusUpdate update;
  while (bridge_->Take(&host, &frame)) {
    if (host < 0 || host >= num_hosts_ || host == group_.host || IsGone(host)) continue;
    replica_.SetAlive(host);
    if (!Decode(frame, rank_size_, &update) || !replica_.Apply(host, update)) Drop(host);
  }
}

// The host is cut off, or has sent updates that cannot be true.
void Watcher::Drop(int host) {
  gone_[static_cast<size_t>(host)] = true;
  replica_.Lose(host, bridge_->Lost(host) ? bridge_->WhyLost(host) : "it has sent invalid data");
}

void Watcher::SendHeartbeat() {
  const int64_t now_ms = MonotonicMs();
  if (now_ms - heartbeat_ms_ < kHeartbeatMs) return;
  heartbeat_ms_ = now_ms;
  replica_.SetAlive(group_.host);
  const Frame heartbeat = Encode({StatusKind::kHeartbeat, own_ranks_.front()}, rank_size_);
  for (int host = 0; host < num_hosts_; ++host) {
    // A host that has no room for a heartbeat has other frames of this host to read.
    if (host != group_.host && !IsGone(host)) static_cast<void>(bridge_->Tell(host, heartbeat));
  }
}

void Watcher::Sleep() {
  std::vector<pollfd> polled = {{group_.doorbell.get(), POLLIN, 0}};
  for (const int rank : own_ranks_) {
    const Peer& peer = group_.peers[static_cast<size_t>(rank)];
    const bool there = peer.lifeline.valid() && !sender_.HasEnded(rank);
    if (there) polled.push_back({peer.lifeline.get(), POLLIN, 0});
  }
  bridge_->AddPolled(&polled);
  static_cast<void>(poll(polled.data(), polled.size(), kMostSleepMs));
  uint64_t rung = 0;
  rung_ = polled.front().revents != 0;
  if (rung_) static_cast<void>(!read(group_.doorbell.get(), &rung, sizeof(rung)));
}

}  // namespace collops::control
