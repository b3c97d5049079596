#pragma once

#include <cstdint>
#include <string>

#include "collops/core/status.h"

namespace [[gnu::visibility("default")]] collops {

// While it lives, the number of the user's call that this thread makes; 0: not known.
class UserCall {
 public:
  explicit UserCall(uint64_t number) : before_(current_) { current_ = number; }
  UserCall(const UserCall&) = delete;
  UserCall& operator=(const UserCall&) = delete;
  ~UserCall() { current_ = before_; }

  static uint64_t Number() { return current_; }

 private:
  static inline thread_local uint64_t current_ = 0;
  const uint64_t before_;
};

// The number of this thread's call in messages; `step` is the number of its step.
inline uint64_t CallNumber(uint64_t step) {
  return UserCall::Number() == 0 ? step : UserCall::Number();
}

// How a message that a call has failed begins: "all_gatherv: call 3".
inline std::string CallText(const char* name, uint64_t step) {
  return Concat(name, ": call ", CallNumber(step));
}

}  // namespace collops
