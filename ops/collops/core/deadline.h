#pragma once

#include <algorithm>
#include <chrono>

namespace collops {

// The moment at which a wait gives up. Every wait has one.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline After(double seconds) {
    // A clock that counts nanoseconds in 64 bits ends after 292 years.
    constexpr double kMostS = 1e9;
    const std::chrono::duration<double> length(std::min(seconds, kMostS));
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(length), seconds);
  }

  bool Passed() const { return Clock::now() >= at_; }
  double RemainingS() const { return std::chrono::duration<double>(at_ - Clock::now()).count(); }
  // The time-out from which it was made, for messages.
  double timeout_s() const { return timeout_s_; }

 private:
  Deadline(Clock::time_point at, double timeout_s) : at_(at), timeout_s_(timeout_s) {}

  Clock::time_point at_;
  double timeout_s_;
};

}  // namespace collops
