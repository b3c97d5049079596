#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "collops/core/status.h"

namespace [[gnu::visibility("default")]] collops {

// Numbers the calls of one communicator as its user counts them: a call of several steps, such as
// one that first exchanges sizes, has one number. One thread at a time.
class UserCalls {
 public:
  // The number of the user's call to which the next step belongs.
  uint64_t Next() {
    if (parts_ > 0) {
      --parts_;
    } else {
      ++last_;
    }
    parts_ += std::exchange(begun_, 0);
    return last_;
  }
  // The next `parts` steps belong to one call.
  void Begin(int parts) { begun_ = parts - 1; }
  // One more step belongs to the latest call.
  void Continue() { ++parts_; }
  // The call has failed: the next step begins another one.
  void Forget() { parts_ = begun_ = 0; }

 private:
  uint64_t last_ = 0;
  int parts_ = 0;  // steps of the call that are still to come
  int begun_ = 0;
};

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
