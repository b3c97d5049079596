#pragma once

#include <atomic>

namespace collops {

// Asked now and then by every wait: true means that the user wants it to end (Ctrl-C).
// The core knows no Python, so the binding installs the function; none means never.
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
