// Carries the heads of hosts between ranks that are threads of one process.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "collops/comm/control/step.h"
#include "collops/core/status.h"

namespace fake {

using collops::Status;
using collops::control::HostHead;

// What is on its way between all ranks. A test may use it from any thread.
class HeadPost {
 public:
  explicit HeadPost(std::vector<int> host_of) : host_of_(std::move(host_of)) {}

  std::unique_ptr<collops::control::HeadCarrier> CarrierOf(int rank);

  // As if `from` had sent it.
  void Insert(int from, int to, const HostHead& head) {
    const std::lock_guard<std::mutex> lock(mutex_);
    heads_[{from, to}].push_back(head);
    changed_.notify_all();
  }
  // The connections of the rank break, and what is on its way to and from it is lost.
  void Lose(int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.insert(rank);
    for (auto& [way, heads] : heads_) {
      if (way.first == rank || way.second == rank) heads.clear();
    }
    changed_.notify_all();
  }
  int sent() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sent_;
  }

 private:
  friend class Carrier;

  const std::vector<int> host_of_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<HostHead>> heads_;
  std::set<int> lost_;
  int sent_ = 0;
};

// The end of one rank. A rank with index i among those of its host hears rank i of another host,
// modulo the number of ranks there.
class Carrier : public collops::control::HeadCarrier {
 public:
  Carrier(HeadPost* post, int rank) : post_(post), rank_(rank) {
    const int size = static_cast<int>(post->host_of_.size());
    for (int host = 0; host <= post->host_of_.back(); ++host) {
      if (host != HostOf(rank)) sources_.push_back(SourceOf(rank, host));
    }
    for (int r = 0; r < size; ++r) {
      if (HostOf(r) != HostOf(rank) && SourceOf(r, HostOf(rank)) == rank) targets_.push_back(r);
    }
  }

  size_t num_sources() const override { return sources_.size(); }
  int source(size_t index) const override { return sources_[index]; }
  Status Send(const HostHead& head) override {
    for (const int to : targets_) {
      if (!IsLost(to)) post_->Insert(rank_, to, head);
    }
    const std::lock_guard<std::mutex> lock(post_->mutex_);
    post_->sent_ += static_cast<int>(targets_.size());
    return collops::Ok();
  }
  bool Sent() override { return true; }
  void Progress() override {}
  bool Take(size_t index, HostHead* head) override {
    const std::lock_guard<std::mutex> lock(post_->mutex_);
    std::deque<HostHead>& heads = post_->heads_[{sources_[index], rank_}];
    if (heads.empty()) return false;
    *head = heads.front();
    heads.pop_front();
    return true;
  }
  Status LossOf(size_t index) const override {
    if (!IsLost(sources_[index])) return collops::Ok();
    return collops::Error(collops::ERROR_PEER_LOST, "the connection is cut");
  }
  void Sleep(const collops::control::WakeCondition&) override {
    std::unique_lock<std::mutex> lock(post_->mutex_);
    for (const int from : sources_) {
      if (!post_->heads_[{from, rank_}].empty()) return;
    }
    post_->changed_.wait_until(lock,
                               std::chrono::system_clock::now() + std::chrono::milliseconds(20));
  }

 private:
  int HostOf(int rank) const { return post_->host_of_[static_cast<size_t>(rank)]; }
  bool IsLost(int rank) const {
    const std::lock_guard<std::mutex> lock(post_->mutex_);
    return post_->lost_.count(rank) != 0 || post_->lost_.count(rank_) != 0;
  }
  std::vector<int> RanksOf(int host) const {
    std::vector<int> ranks;
    for (size_t r = 0; r < post_->host_of_.size(); ++r) {
      if (post_->host_of_[r] == host) ranks.push_back(static_cast<int>(r));
    }
    return ranks;
  }
  int SourceOf(int rank, int host) const {
    const std::vector<int> own = RanksOf(HostOf(rank));
    const std::vector<int> there = RanksOf(host);
    const auto index = static_cast<size_t>(std::find(own.begin(), own.end(), rank) - own.begin());
    return there[index % there.size()];
  }

  HeadPost* post_;
  int rank_;
  std::vector<int> sources_;
  std::vector<int> targets_;
};

inline std::unique_ptr<collops::control::HeadCarrier> HeadPost::CarrierOf(int rank) {
  return std::make_unique<Carrier>(this, rank);
}

}  // namespace fake
