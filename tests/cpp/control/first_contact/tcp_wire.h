// Several hosts on the loopback interface: a TCP connection between each two, whose frames a test
// may delay.
#pragma once

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>

#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/hosts/mesh.h"
#include "control/first_contact/loopback.h"

namespace tcp_hosts {

using collops::control::Connection;
using collops::control::Frame;
using collops::control::TcpBridge;
using collops::control::UniqueFd;
using Clock = std::chrono::steady_clock;

// What joins the boards of the hosts of a test, which may change it from any thread.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  // How long a frame from one host to another is under way.
  using Delay = std::function<std::chrono::microseconds(int from, int to)>;

  explicit Wire(int num_hosts, Delay delay = {}, const std::string& address = "127.0.0.1")
      : delay_(std::move(delay)), stopped_(static_cast<size_t>(num_hosts), false) {
    ends_.resize(static_cast<size_t>(num_hosts));
    for (auto& row : ends_) row.resize(static_cast<size_t>(num_hosts));
    for (size_t i = 0; i < ends_.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        loopback::Ends ends(address);
        sockets_.emplace_back(dup(ends.raw));
        ends_[i][j] = std::move(*ends.first);
        ends_[j][i] = std::move(*ends.second);
      }
    }
  }

  std::unique_ptr<collops::control::Bridge> EndOf(int host);
  // Breaks all connections for good.
  void Cut() {
    for (const UniqueFd& socket : sockets_) EXPECT_EQ(shutdown(socket.get(), SHUT_RDWR), 0);
  }
  // Stops the watcher of a host, as if its process had been stopped.
  void Stop(int host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_[static_cast<size_t>(host)] = true;
  }
  void GoOn(int host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_[static_cast<size_t>(host)] = false;
    changed_.notify_all();
  }
  // As if `from` had sent it to `to`.
  void Insert(int from, int to, const Frame& frame) {
    const std::lock_guard<std::mutex> lock(mutex_);
    inserted_[to].push_back({from, frame});
  }
  // Frames that were sent by all hosts.
  int sent() const { return sent_; }

 private:
  friend class End;

  void Enter(int host) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !stopped_[static_cast<size_t>(host)]; });
  }
  bool TakeInserted(int to, int* from, Frame* frame) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& frames = inserted_[to];
    if (frames.empty()) return false;
    std::tie(*from, *frame) = std::move(frames.front());
    frames.pop_front();
    return true;
  }
  Clock::time_point DueAt(int from, int to) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return delay_ ? Clock::now() + delay_(from, to) : Clock::now();
  }

  const Delay delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> stopped_;
  std::vector<std::vector<Connection>> ends_;
  std::vector<UniqueFd> sockets_;
  std::map<int, std::deque<std::pair<int, Frame>>> inserted_;  // to each host, with its sender
  std::atomic<int> sent_{0};
};

// The bridge of one host, with delays. A frame that is not due is held back with all that follow it
// on its connection.
class End : public collops::control::Bridge {
 public:
  End(std::shared_ptr<Wire> wire, int host, std::vector<Connection> connections)
      : wire_(std::move(wire)), host_(host), bridge_(host, std::move(connections)) {
    collops::control::RingDoorbell(doorbell_.get());
  }

  bool Tell(int host, const Frame& frame) override {
    wire_->Enter(host_);
    const bool told = bridge_.Tell(host, frame);
    if (told) ++wire_->sent_;
    return told;
  }
  bool Take(int* host, Frame* frame) override {
    wire_->Enter(host_);
    if (wire_->TakeInserted(host_, host, frame)) return true;
    while (bridge_.Take(host, frame)) {
      held_[*host].push_back({std::move(*frame), wire_->DueAt(*host, host_)});
    }
    for (auto& [from, frames] : held_) {
      if (frames.empty() || frames.front().due > Clock::now()) continue;
      *host = from;
      *frame = std::move(frames.front().frame);
      frames.pop_front();
      return true;
    }
    return false;
  }
  bool Lost(int host) const override {
    wire_->Enter(host_);
    const auto held = held_.find(host);
    return bridge_.Lost(host) && (held == held_.end() || held->second.empty());
  }
  std::string WhyLost(int host) const override { return bridge_.WhyLost(host); }
  void AddPolled(std::vector<pollfd>* polled) const override {
    wire_->Enter(host_);
    bridge_.AddPolled(polled);
    for (const auto& [from, frames] : held_) {
      if (!frames.empty()) polled->push_back({doorbell_.get(), POLLIN, 0});
    }
  }

 private:
  struct Held {
    Frame frame;
    Clock::time_point due;
  };
  std::shared_ptr<Wire> wire_;
  int host_;
  TcpBridge bridge_;
  std::map<int, std::deque<Held>> held_;
  UniqueFd doorbell_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};  // always rings
};

inline std::unique_ptr<collops::control::Bridge> Wire::EndOf(int host) {
  return std::make_unique<End>(shared_from_this(), host,
                               std::move(ends_[static_cast<size_t>(host)]));
}

}  // namespace tcp_hosts
