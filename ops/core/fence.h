#pragma once

#include <atomic>

namespace collops {

// Memory fences that TSan, which knows none, does not see: where it runs, ranks are ordered by
// their signals alone.
inline void Fence(std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
  static_cast<void>(order);
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace collops
