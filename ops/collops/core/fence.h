#pragma once

#include <atomic>

namespace collops {

// Memory fences. TSan does not know them, so under TSan ranks are ordered by their signals only.
inline void Fence(std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
  static_cast<void>(order);
#else
  std::atomic_thread_fence(order);
#endif
}

// The memory of this machine. Code that is a template over its memory takes this one; tests take a
// model in which other threads see stores as late as their orders allow.
struct MachineMemory {
  template <typename T>
  using Atomic = std::atomic<T>;
  static void Fence(std::memory_order order) { collops::Fence(order); }
};

}  // namespace collops
