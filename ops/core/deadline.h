#pragma once

#include <chrono>

namespace collops {

// The moment at which a wait gives up. Every wait has one.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline After(double seconds) {
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(seconds)),
                    seconds);
  }

  bool Passed() const { return Clock::now() >= at_; }
  double RemainingS() const { return std::chrono::duration<double>(at_ - Clock::now()).count(); }
  // The length it was made with, for messages.
  double timeout_s() const { return timeout_s_; }

 private:
  Deadline(Clock::time_point at, double timeout_s) : at_(at), timeout_s_(timeout_s) {}

  Clock::time_point at_;
  double timeout_s_;
};

}  // namespace collops
