#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace collops::bindings {

// The last run times of this thread's forward() calls by the operator's name, as torch_atb.Prof has
// them: whole microseconds, the latest one last, at most 1000.
class RunTimes {
 public:
  using Clock = std::chrono::steady_clock;

  static RunTimes& OfThread() {
    static thread_local RunTimes times;
    return times;
  }

  void Add(const char* name, Clock::duration time) {
    std::deque<uint64_t>& times = times_[name];
    if (times.size() == kMost) times.pop_front();
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(time);
    times.push_back(static_cast<uint64_t>(whole.count()));
  }

  std::vector<uint64_t> Get(const std::string& name) const {
    const auto found = times_.find(name);
    if (found == times_.end()) return {};
    return {found->second.begin(), found->second.end()};
  }

 private:
  static constexpr size_t kMost = 1000;
  std::unordered_map<std::string, std::deque<uint64_t>> times_;
};

}  // namespace collops::bindings
