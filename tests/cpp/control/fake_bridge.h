// A bridge between two boards of one process: two queues, with delays and a watcher that can be
// stopped.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/hosts/watcher.h"
#include "control/wire.h"

namespace fake {

using collops::control::Frame;
using collops::control::UniqueFd;
using Clock = std::chrono::steady_clock;

struct Faults {
  int most_delay_us = 0;    // largest random delay of a frame
  size_t most_frames = 64;  // capacity of each direction
};

// The state of both ends. A test may change it from any thread.
class Link : public hosts::Wire, public std::enable_shared_from_this<Link> {
 public:
  explicit Link(const Faults& faults) : faults_(faults) {}

  std::unique_ptr<collops::control::Bridge> EndOf(int host) override;
  void Cut() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    cut_ = true;
    for (Way& way : ways_) way.frames.clear();
  }
  void Stop(int host) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_[host] = true;
  }
  void GoOn(int host) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_[host] = false;
    changed_.notify_all();
  }
  // Inserts a frame as if `host` had sent it.
  void Insert(int host, const Frame& frame) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ways_[1 - host].frames.push_back({frame, Clock::now()});
  }
  // Frames that were sent, in both directions.
  int sent() const { return sent_.load(); }

 private:
  friend class Bridge;
  struct Sent {
    Frame frame;
    Clock::time_point due;
  };
  struct Way {  // one direction, to a host
    std::deque<Sent> frames;
    UniqueFd doorbell{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  };

  std::unique_lock<std::mutex> Enter(int host) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !stopped_[host]; });
    return lock;
  }

  const Faults faults_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_{1};
  Way ways_[2];
  bool stopped_[2] = {};
  bool cut_ = false;
  bool closed_[2] = {};  // its watcher has sent all and closed
  std::atomic<int> sent_{0};
};

// The end of host 0 or 1.
class Bridge : public collops::control::Bridge {
 public:
  Bridge(std::shared_ptr<Link> link, int host) : link_(std::move(link)), host_(host) {}
  ~Bridge() override {
    const auto lock = link_->Enter(host_);
    link_->closed_[host_] = true;
  }

  bool Tell(int host, const Frame& frame) override {
    const auto lock = link_->Enter(host_);
    Link::Way& way = link_->ways_[host];
    if (link_->cut_ || way.frames.size() >= link_->faults_.most_frames) return false;
    ++link_->sent_;
    const int most = link_->faults_.most_delay_us;
    const auto delay = std::chrono::microseconds(most == 0 ? 0 : link_->random_() % most);
    Clock::time_point due = Clock::now() + delay;
    if (!way.frames.empty()) due = std::max(due, way.frames.back().due);
    way.frames.push_back({frame, due});
    collops::control::RingDoorbell(way.doorbell.get());
    return true;
  }

  bool Take(int* host, Frame* frame) override {
    const auto lock = link_->Enter(host_);
    Link::Way& way = link_->ways_[host_];
    uint64_t rung = 0;
    // A later frame rings again. Until a frame is due, the watcher polls.
    if (way.frames.empty()) static_cast<void>(!read(way.doorbell.get(), &rung, sizeof(rung)));
    if (way.frames.empty() || way.frames.front().due > Clock::now()) return false;
    *host = 1 - host_;
    *frame = std::move(way.frames.front().frame);
    way.frames.pop_front();
    collops::control::RingDoorbell(link_->ways_[1 - host_].doorbell.get());  // there is room again
    return true;
  }

  std::string WhyLost(int) const override { return "it was cut"; }
  bool Lost(int host) const override {
    const auto lock = link_->Enter(host_);
    return link_->cut_ || (link_->closed_[host] && link_->ways_[host_].frames.empty());
  }

  void AddPolled(std::vector<pollfd>* polled) const override {
    const auto lock = link_->Enter(host_);
    polled->push_back({link_->ways_[host_].doorbell.get(), POLLIN, 0});
  }

 private:
  std::shared_ptr<Link> link_;
  int host_;
};

inline std::unique_ptr<collops::control::Bridge> Link::EndOf(int host) {
  return std::make_unique<Bridge>(shared_from_this(), host);
}

}  // namespace fake
