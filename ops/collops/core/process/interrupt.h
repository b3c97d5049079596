#pragma once

#include <atomic>

namespace collops {

// Called now and then by every wait; true means that the user wants it to end (Ctrl-C). The binding
// installs the function, because the core does not know Python; null: never interrupted.
using InterruptCheck = bool (*)();

inline std::atomic<InterruptCheck>& InterruptCheckSlot() {
  static std::atomic<InterruptCheck> slot{nullptr};
  return slot;
}

inline bool Interrupted() {
  const InterruptCheck check = InterruptCheckSlot().load(std::memory_order_acquire);
  return check != nullptr && check();
}

}  // namespace collops
